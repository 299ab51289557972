// What the kernels on embedding tables are told, and the functions that exist once per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fm2/embedding.h"

namespace fm2 {

// Rows [begin, end) of a batch that look into a table.
struct Lookup {
    const Minibatch& batch;
    const Embeddings& table;
    std::size_t begin, end;
};

// One field of a batch: its distinct features, and which of them each row has.
struct FieldBatch {
    std::size_t field;
    std::size_t rows;           // of the batch
    const std::int32_t* slots;  // [rows]
    std::size_t count;
    const std::int32_t* features;  // [count]
};

struct TableKernels {
    // Copies the rows' embeddings to their places in out [size, width], thinned out by the mask.
    void (*gather)(const Lookup& lookup, const Mask& mask, float* out);
    // logits[row] += the row's linear weights.
    void (*add_linear)(const Lookup& lookup, float* logits);
    // logits[row] += the pair terms of a factorization machine; sums[row] = the sum of its embeddings. Both have the signs, if any.
    void (*add_pairs)(const Lookup& lookup, const float* signs, float* logits, float* sums);
    // sums [count, dim] = the gradients of the field's distinct features, from gradient.rows, or from gradient.sums without
    // the term of the weights themselves.
    void (*sum_gradients)(const FieldBatch& batch, const Layout& layout, const Gradient& gradient, float* sums);
    // sums [count] = the gradients in the logits of the rows that have each distinct feature.
    void (*sum_logits)(const FieldBatch& batch, const float* logits, float* sums);
    // Moves the distinct features by their summed gradients, less masses [count] (if not null) times their weights and signs.
    void (*move)(const FieldBatch& batch, const Update& update, std::int64_t step, const float* sums, const float* masses);
    // Brings the averages of features [begin, end) of a field up to date.
    void (*finish_average)(const Embeddings& table, std::size_t field, std::size_t begin, std::size_t end, std::int64_t step);
};

}  // namespace fm2
