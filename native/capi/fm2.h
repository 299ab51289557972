/* Compiled models in any language that can call C: open a model.fm2, score rows, close it.
 *
 *     fm2_model* model;
 *     float probability;
 *     const char* values[] = {"mobile", NULL, "17"};      // in the order of fm2_column_name; NULL is a missing value
 *     if (fm2_open("model.fm2", 1, &model) != FM2_OK ||
 *         fm2_score_values(model, values, NULL, 1, 3, 0, 0, &probability) != FM2_OK)
 *         fprintf(stderr, "%s\n", fm2_last_error());
 *     fm2_close(model);
 *
 * Every function but fm2_close, fm2_last_error and fm2_interface_version gives a status. Where it is not FM2_OK, fm2_last_error
 * says why, and what the function would have written is not to be read. A null pointer or an impossible count is FM2_MISUSED,
 * never a crash.
 *
 * Any number of threads may use one model at the same time; only fm2_close must come last. An open model is mapped from its file:
 * give it a new one by renaming, as `fm2 compile` does, not by writing into it.
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

/* Grows with every function or flag that is added here; what is there stays as it is. */
#define FM2_INTERFACE_VERSION 1

typedef struct fm2_model fm2_model;

enum {
    FM2_OK = 0,
    FM2_MISUSED = 1,   /* an argument that cannot be meant: null, a wrong count, an id that its field does not have */
    FM2_BAD_MODEL = 2, /* the file cannot be read, or is no model */
    FM2_FAILED = 3     /* anything else: no memory, or FM2_SIMD or FM2_THREADS say what this machine cannot do */
};

/* Flags of the functions that score; others are refused. */
enum {
    FM2_LOGITS = 1 /* logits instead of probabilities */
};

/* The FM2_INTERFACE_VERSION of the library itself. */
FM2_API int fm2_interface_version(void);

/* Why this thread's last call that failed did so: one line, empty if none has. It is good until this thread's next call. */
FM2_API const char* fm2_last_error(void);

/* Opens a compiled model. With `verify` other than 0 all of it is read once and compared with its checksum. On failure *model is
 * NULL. */
FM2_API int fm2_open(const char* path, int verify, fm2_model** model);

/* Closes a model; NULL is none. */
FM2_API void fm2_close(fm2_model* model);

/* The number of fields: ids that an encoded row has. */
FM2_API int fm2_field_count(const fm2_model* model, size_t* count);

/* How many features a field has: its ids go from 0, which is unknown, to size - 1. */
FM2_API int fm2_field_size(const fm2_model* model, size_t field, int32_t* size);

/* The number of columns: values that a raw row has. Several fields may come from one column. */
FM2_API int fm2_column_count(const fm2_model* model, size_t* count);

/* The name of a column, in UTF-8. It is good until the model is closed. */
FM2_API int fm2_column_name(const fm2_model* model, size_t column, const char** name);

/* Scores encoded rows: ids [rows][fields] to scores [rows]. More than 256 rows are shared by up to `threads` threads (0: as many as
 * there are processors, or FM2_THREADS). */
FM2_API int fm2_score_ids(const fm2_model* model, const int32_t* ids, size_t rows, size_t fields, unsigned flags, size_t threads,
                          float* scores);

/* Scores raw rows: values [rows][columns], texts in UTF-8, to scores [rows]. NULL and the words that the model's schema has for it
 * are missing values; what training did not show, or what cannot be read, is unknown. lengths [rows][columns] has the bytes of each
 * text; where it is NULL, texts end with a zero byte. */
FM2_API int fm2_score_values(const fm2_model* model, const char* const* values, const size_t* lengths, size_t rows, size_t columns,
                             unsigned flags, size_t threads, float* scores);

/* A model whose fields are divided: those of a context, and all others, the candidates'. */
typedef struct fm2_ranker fm2_ranker;

/* Makes a ranker: context [count] has the numbers of the context's fields. It keeps what it needs of the model, which may be closed
 * before it. On failure *ranker is NULL. */
FM2_API int fm2_ranker_open(const fm2_model* model, const size_t* context, size_t count, fm2_ranker** ranker);

/* Closes a ranker; NULL is none. */
FM2_API void fm2_ranker_close(fm2_ranker* ranker);

/* Scores candidates in one context, whose part is computed once: context ids [context_fields], in the order given to
 * fm2_ranker_open, and candidate ids [rows][candidate_fields], in the order of the fields, to scores [rows]. */
FM2_API int fm2_rank_ids(const fm2_ranker* ranker, const int32_t* context, size_t context_fields, const int32_t* candidates, size_t rows,
                         size_t candidate_fields, unsigned flags, size_t threads, float* scores);

#ifdef __cplusplus
}
#endif

#endif
