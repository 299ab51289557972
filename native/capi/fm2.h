/* The C interface: score rows with a compiled model (model.fm2) from any language that can call C.
 *
 *     fm2_model* model;
 *     float probability;
 *     const char* values[] = {"mobile", NULL, "17"};      // in the order of fm2_column_name; NULL is a missing value
 *     if (fm2_open("model.fm2", 1, &model) != FM2_OK ||
 *         fm2_score_values(model, values, NULL, 1, 3, 0, 0, &probability) != FM2_OK)
 *         fprintf(stderr, "%s\n", fm2_last_error());
 *     fm2_close(model);
 *
 * All functions except fm2_interface_version, fm2_last_error, fm2_close and fm2_ranker_close return a status. If it is not FM2_OK,
 * fm2_last_error returns the reason, and the outputs of the call are undefined. Null pointers and invalid counts return FM2_MISUSED;
 * they never crash.
 *
 * Networks whose layers need ONNX Runtime cannot be opened (FM2_BAD_MODEL); fm2.load in Python scores them.
 *
 * Any number of threads may use the same model at the same time. Do not close it while a call is running. An open model stays mapped
 * from its file: to update the file, rename a new one over it, as `fm2 compile` does; do not write into it.
 */
#ifndef FM2_H
#define FM2_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define FM2_API __attribute__((visibility("default")))
#else
#define FM2_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Increases with every function or flag added here. Existing ones do not change. */
#define FM2_INTERFACE_VERSION 2

typedef struct fm2_model fm2_model;

enum {
    FM2_OK = 0,
    FM2_MISUSED = 1,   /* invalid argument: a null pointer, a wrong count, an id outside its field */
    FM2_BAD_MODEL = 2, /* the file cannot be read, or is not a valid compiled model */
    FM2_FAILED = 3     /* any other error: out of memory, or an invalid FM2_SIMD or FM2_THREADS in the environment */
};

/* Flags of the functions that score rows. Unknown flags are an error. */
enum {
    FM2_LOGITS = 1 /* return the model's logits instead of calibrated probabilities */
};

/* Returns the FM2_INTERFACE_VERSION the library was built with. */
FM2_API int fm2_interface_version(void);

/* Returns why the last failed call of this thread failed, in one line; empty if none has failed. Valid until this thread's next call. */
FM2_API const char* fm2_last_error(void);

/* Opens a compiled model. If `verify` is not 0, reads the complete file and checks its checksum. On failure, *model is NULL. */
FM2_API int fm2_open(const char* path, int verify, fm2_model** model);

/* Closes a model. NULL is ignored. */
FM2_API void fm2_close(fm2_model* model);

/* Gets the number of fields, which is the number of ids per encoded row. */
FM2_API int fm2_field_count(const fm2_model* model, size_t* count);

/* Gets the number of features of a field. Its ids are 0 (unknown) to size - 1. */
FM2_API int fm2_field_size(const fm2_model* model, size_t field, int32_t* size);

/* Gets whether the rows of a field have lists of features (1), or one feature each (0). Multi-valued fields have lists, and so have numbers
 * that are interpolated or linear. */
FM2_API int fm2_field_is_list(const fm2_model* model, size_t field, int* is_list);

/* Gets the number of columns, which is the number of values per raw row. Several fields may use the same column, and crosses and
 * trees use none. */
FM2_API int fm2_column_count(const fm2_model* model, size_t* count);

/* Gets the name of a column, in UTF-8. Valid until the model is closed. */
FM2_API int fm2_column_name(const fm2_model* model, size_t column, const char** name);

/* Scores encoded rows of a model without lists: ids [rows][fields], including those of crosses and trees, to scores [rows]. Uses up to
 * `threads` threads if there are more than 256 rows; 0 means FM2_THREADS if it is set, and all processors otherwise. */
FM2_API int fm2_score_ids(const fm2_model* model, const int32_t* ids, size_t rows, size_t fields, unsigned flags, size_t threads,
                          float* scores);

/* Scores raw rows: values [rows][columns], texts in UTF-8, to scores [rows]. NULL, and the texts the model's schema declares as missing,
 * are missing values. Values that did not occur in training, or cannot be parsed, are unknown. The text of a multi-valued field is split
 * as the schema says, for example at "|"; a value whose weight is invalid is unknown, with weight 1. lengths [rows][columns] has the
 * number of bytes of each text; if it is NULL, texts end with a zero byte. Uses up to `threads` threads if there are more than 64 rows.
 *
 * Both functions allocate no memory for a single row, except in the first calls of a thread. */
FM2_API int fm2_score_values(const fm2_model* model, const char* const* values, const size_t* lengths, size_t rows, size_t columns,
                             unsigned flags, size_t threads, float* scores);

/* The lists of one field: row r has the values offsets[r] to offsets[r + 1] - 1 of `ids` and `weights`. */
typedef struct fm2_lists {
    size_t field;           /* its column among the ids of the rows */
    const int64_t* offsets; /* [rows + 1] */
    const int32_t* ids;     /* [values] */
    const float* weights;   /* [values], 0 or more, before pooling; NULL: all are 1 */
    size_t values;          /* the length of ids and weights */
} fm2_lists;

/* Encoded rows with lists. In the columns of list fields, `ids` is not read. */
typedef struct fm2_rows {
    const int32_t* ids;     /* [count][fields] */
    size_t count;
    size_t fields;
    const fm2_lists* lists; /* [list_fields], in any order */
    size_t list_fields;
} fm2_rows;

/* Scores encoded rows; they need lists for exactly those fields of the model that have lists. The pooling of a multi-valued field is
 * applied to its weights, but not the schema's max_values. The weights of an interpolated or linear number are used as they are, and may be
 * negative. A missing list has the single id of the missing value; an empty list contributes nothing. Otherwise like fm2_score_ids. */
FM2_API int fm2_score_rows(const fm2_model* model, const fm2_rows* rows, unsigned flags, size_t threads, float* scores);

/* Ranks candidates: a model whose fields are divided into those of a context and those of its candidates. */
typedef struct fm2_ranker fm2_ranker;

/* Creates a ranker. context [count] has the numbers of the context's fields; all other fields belong to the candidates. A cross of fields
 * of both sides belongs to the candidates. The model may be closed before the ranker. On failure, *ranker is NULL. */
FM2_API int fm2_ranker_open(const fm2_model* model, const size_t* context, size_t count, fm2_ranker** ranker);

/* Closes a ranker. NULL is ignored. */
FM2_API void fm2_ranker_close(fm2_ranker* ranker);

/* Scores candidates of a model without lists in one context, whose part is computed only once. context [context_fields] has the context's
 * ids in the order passed to fm2_ranker_open; candidates [rows][candidate_fields] has the other ids in the order of the fields. The ids of
 * crosses of fields of both sides are not read: they follow from the other ids. Those of trees are: score raw values to evaluate trees that
 * read both sides. Writes scores [rows]. */
FM2_API int fm2_rank_ids(const fm2_ranker* ranker, const int32_t* context, size_t context_fields, const int32_t* candidates, size_t rows,
                         size_t candidate_fields, unsigned flags, size_t threads, float* scores);

/* The same for rows with lists: one row of the context's fields, and rows of the candidates' fields. */
FM2_API int fm2_rank_rows(const fm2_ranker* ranker, const fm2_rows* context, const fm2_rows* candidates, unsigned flags, size_t threads,
                          float* scores);

#ifdef __cplusplus
}
#endif

#endif
