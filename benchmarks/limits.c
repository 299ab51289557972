/* Scores encoded rows one by one; limits.py counts its instructions:  limits MODEL IDS ROWS
 *
 * IDS is a file of int32 ids: at least ROWS rows, with one id per field of the model.
 */
#include <fm2.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char** words) {
    fm2_model* model;
    size_t fields;
    float logit, total = 0;
    if (count != 4) return EXIT_FAILURE;
    if (fm2_open(words[1], 0, &model) != FM2_OK || fm2_field_count(model, &fields) != FM2_OK) {
        fprintf(stderr, "limits: %s\n", fm2_last_error());
        return EXIT_FAILURE;
    }
    const size_t rows = strtoul(words[3], NULL, 10);
    int32_t* ids = malloc(rows * fields * sizeof *ids + 1);
    FILE* file = fopen(words[2], "rb");
    if (!ids || !file || fread(ids, fields * sizeof *ids, rows, file) != rows) return EXIT_FAILURE;
    for (size_t row = 0; row < rows; ++row) {
        if (fm2_score_ids(model, ids + row * fields, 1, fields, FM2_LOGITS, 1, &logit) != FM2_OK) return EXIT_FAILURE;
        total += logit;
    }
    printf("%g\n", total); /* so that nothing is left out */
    fclose(file);
    free(ids);
    fm2_close(model);
    return EXIT_SUCCESS;
}
