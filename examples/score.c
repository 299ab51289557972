/* Scores raw rows with a compiled model:  score MODEL ROWS
 *
 * ROWS has a row a line, its values separated by tabs, in the order of the model's columns; an empty value is missing. A click
 * probability is printed for every row. `make capi` leaves the library and its header in build/capi; then
 *
 *     cc examples/score.c -I build/capi/include -L build/capi/lib -lfm2 -Wl,-rpath,$PWD/build/capi/lib -o score
 */
#define _POSIX_C_SOURCE 200809L

#include <fm2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(const char* reason) {
    fprintf(stderr, "score: %s\n", reason);
    return EXIT_FAILURE;
}

/* Cuts a line at its tabs; gives how many values it has, at most one more than there is room for. */
static size_t cut(char* line, const char** values, size_t room) {
    size_t count = 0;
    line[strcspn(line, "\r\n")] = '\0';
    while (line && count <= room) {
        char* tab = strchr(line, '\t');
        if (tab) *tab++ = '\0';
        if (count < room) values[count] = *line ? line : NULL;
        ++count;
        line = tab;
    }
    return count;
}

static int score_rows(const fm2_model* model, FILE* rows) {
    size_t columns, capacity = 0;
    if (fm2_column_count(model, &columns) != FM2_OK) return failed(fm2_last_error());
    const char** values = malloc((columns + 1) * sizeof *values);
    char* line = NULL;
    int status = values ? EXIT_SUCCESS : failed("there is not enough memory");
    while (status == EXIT_SUCCESS && getline(&line, &capacity, rows) >= 0) {
        float probability;
        const size_t count = cut(line, values, columns);
        if (fm2_score_values(model, values, NULL, 1, count, 0, 1, &probability) != FM2_OK)
            status = failed(fm2_last_error());
        else
            printf("%.9g\n", probability);
    }
    free(line);
    free(values);
    return status;
}

int main(int count, char** words) {
    fm2_model* model;
    if (count != 3) return failed("give a compiled model and a file of rows");
    if (fm2_open(words[1], 1, &model) != FM2_OK) return failed(fm2_last_error());
    FILE* rows = fopen(words[2], "r");
    const int status = rows ? score_rows(model, rows) : failed("the file of rows cannot be opened");
    if (rows) fclose(rows);
    fm2_close(model);
    return status;
}
