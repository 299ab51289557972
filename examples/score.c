/* Scores raw rows with a compiled model:  score MODEL ROWS
 *
 * ROWS has one row per line, with tab-separated values in the order of the model's columns; empty values are missing. Prints one click
 * probability per row. `make capi` builds the library and copies it with its header to build/capi; then
 *
 *     cc examples/score.c -I build/capi/include -L build/capi/lib -lfm2 -Wl,-rpath,$PWD/build/capi/lib -o score
 */
#define _POSIX_C_SOURCE 200809L

#include <fm2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char* reason) {
    fprintf(stderr, "score: %s\n", reason);
    return EXIT_FAILURE;
}

/* Splits a line at its tabs and returns the number of values, at most one more than the capacity. */
static size_t split(char* line, const char** values, size_t capacity) {
    size_t count = 0;
    line[strcspn(line, "\r\n")] = '\0';
    while (line && count <= capacity) {
        char* tab = strchr(line, '\t');
        if (tab) *tab++ = '\0';
        if (count < capacity) values[count] = *line ? line : NULL;
        ++count;
        line = tab;
    }
    return count;
}

static int score_rows(const fm2_model* model, FILE* rows) {
    size_t columns, line_capacity = 0;
    if (fm2_column_count(model, &columns) != FM2_OK) return fail(fm2_last_error());
    const char** values = malloc((columns + 1) * sizeof *values);
    char* line = NULL;
    int status = values ? EXIT_SUCCESS : fail("out of memory");
    while (status == EXIT_SUCCESS && getline(&line, &line_capacity, rows) >= 0) {
        float probability;
        const size_t count = split(line, values, columns);
        if (fm2_score_values(model, values, NULL, 1, count, 0, 1, &probability) != FM2_OK) status = fail(fm2_last_error());
        else printf("%.9g\n", probability);
    }
    free(line);
    free(values);
    return status;
}

int main(int count, char** arguments) {
    fm2_model* model;
    if (count != 3) return fail("expected two arguments: a compiled model and a file of rows");
    if (fm2_open(arguments[1], 1, &model) != FM2_OK) return fail(fm2_last_error());
    FILE* rows = fopen(arguments[2], "r");
    const int status = rows ? score_rows(model, rows) : fail("cannot open the file of rows");
    if (rows) fclose(rows);
    fm2_close(model);
    return status;
}
