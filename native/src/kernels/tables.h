// The kernels for embedding tables, and their arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fm2/embedding.h"

namespace fm2 {

// Rows [begin, end) of a batch, looked up in a table.
struct Lookup {
    const Minibatch& batch;
    const Embeddings& table;
    std::size_t begin, end;
};

// One field of a batch: its distinct features, and each row's index among them (its slot).
struct FieldBatch {
    std::size_t field;
    std::size_t rows;           // of the batch
    const std::int32_t* slots;  // [rows]
    std::size_t count;          // of distinct features
    const std::int32_t* features;  // [count]
};

struct TableKernels {
    // Copies the rows' embeddings to out [size, width] and applies the mask.
    void (*gather)(const Lookup& lookup, const Mask& mask, float* out);
    // logits[row] += the sum of the row's linear weights.
    void (*add_linear)(const Lookup& lookup, float* logits);
    // logits[row] += the pair terms of a factorization machine; sums[row] = the sum of its embeddings. Both include the signs, if any.
    void (*add_pairs)(const Lookup& lookup, const float* signs, float* logits, float* sums);
    // sums [count, dim] = the gradients of the field's distinct features, from gradient.rows, or from gradient.sums without the
    // term that depends on the weights.
    void (*sum_gradients)(const FieldBatch& batch, const Layout& layout, const Gradient& gradient, float* sums);
    // sums [count] = for each distinct feature, the sum of the logit gradients of its rows.
    void (*sum_logits)(const FieldBatch& batch, const float* logits, float* sums);
    // Updates the distinct features with the gradients sums - logit_sums * signs * weights; logit_sums [count] may be null.
    void (*update_rows)(const FieldBatch& batch, const Update& update, std::int64_t step, const float* sums, const float* logit_sums);
    // Updates the moving averages of features [begin, end) of a field to the given step.
    void (*finish_average)(const Embeddings& table, std::size_t field, std::size_t begin, std::size_t end, std::int64_t step);
};

}  // namespace fm2
