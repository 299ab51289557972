/* Scores ids with lists:  score_lists MODEL ROWS
 *
 * ROWS has one row per line: the ids of all fields, separated by spaces. The ids of a multi-valued field are separated by commas; "-" is an
 * empty list. Prints one click probability per row. See examples/score.c for how to build it.
 */
#define _POSIX_C_SOURCE 200809L

#include <fm2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FIELDS = 256, MAX_VALUES = 4096 };

static int fail(const char* reason) {
    fprintf(stderr, "score_lists: %s\n", reason);
    return EXIT_FAILURE;
}

/* One row. A row is the only one of its call, so its lists start at 0. */
struct row {
    int32_t ids[MAX_FIELDS];
    fm2_lists lists[MAX_FIELDS];
    int64_t offsets[MAX_FIELDS][2];
    int32_t values[MAX_VALUES]; /* of all lists */
    size_t fields, list_fields, used;
};

/* Adds the list in a text of ids and commas. Returns 0 if there are too many values. */
static int add_list(struct row* row, char* text) {
    int32_t* begin = row->values + row->used;
    char* rest = NULL;
    char* id;
    for (id = strtok_r(text, ",-", &rest); id; id = strtok_r(NULL, ",-", &rest)) {
        if (row->used == MAX_VALUES) return 0;
        row->values[row->used++] = (int32_t)strtol(id, NULL, 10);
    }
    {
        const size_t count = (size_t)(row->values + row->used - begin);
        const fm2_lists list = {row->fields, row->offsets[row->list_fields], begin, NULL, count};
        row->offsets[row->list_fields][0] = 0;
        row->offsets[row->list_fields][1] = (int64_t)count;
        row->lists[row->list_fields++] = list;
    }
    return 1;
}

/* Reads a line. Returns 0 if it has more fields or values than there is room for. */
static int read_row(const fm2_model* model, char* line, struct row* row) {
    char* rest = NULL;
    char* text;
    row->fields = row->list_fields = row->used = 0;
    for (text = strtok_r(line, " \r\n", &rest); text; text = strtok_r(NULL, " \r\n", &rest)) {
        int is_list = 0;
        if (row->fields == MAX_FIELDS) return 0;
        (void)fm2_field_is_list(model, row->fields, &is_list); /* scoring reports a row with too many fields */
        row->ids[row->fields] = is_list ? 0 : (int32_t)strtol(text, NULL, 10);
        if (is_list && !add_list(row, text)) return 0;
        ++row->fields;
    }
    return 1;
}

static int score_rows(const fm2_model* model, FILE* file) {
    static struct row row;
    char* line = NULL;
    size_t capacity = 0;
    int status = EXIT_SUCCESS;
    while (status == EXIT_SUCCESS && getline(&line, &capacity, file) >= 0) {
        float probability;
        fm2_rows rows;
        if (!read_row(model, line, &row)) {
            status = fail("a row has too many ids");
            break;
        }
        rows.ids = row.ids;
        rows.count = 1;
        rows.fields = row.fields;
        rows.lists = row.lists;
        rows.list_fields = row.list_fields;
        if (fm2_score_rows(model, &rows, 0, 1, &probability) != FM2_OK) status = fail(fm2_last_error());
        else printf("%.9g\n", probability);
    }
    free(line);
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
