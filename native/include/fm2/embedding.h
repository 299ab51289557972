// Embedding tables: lookups for batches of rows, and sparse optimizer steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fm2/dropout.h"
#include "fm2/layout.h"
#include "fm2/minibatch.h"
#include "fm2/optimizer.h"

namespace fm2 {

struct Kernels;

// The buffers of one table. The caller owns them; unless noted otherwise, each has layout.floats elements.
struct Embeddings {
    const Layout* layout = nullptr;
    float* weights = nullptr;
    float* state[2] = {};             // the optimizer's state
    const float* l2_scale = nullptr;  // [features] multiplies l2, or null
    // The exponential moving average of the weights, a = decay * a + (1 - decay) * w after every step, or null. It is computed lazily,
    // when a row changes: touched [features] is the step up to which a row's average is correct.
    float* average = nullptr;
    std::int32_t* touched = nullptr;
    float decay = 0;
};

// The gradient of the loss for a batch, in one of these forms:
//   rows [size, width]                       with respect to the gathered (and masked) rows;
//   logits [size] and rows [size, width]     the same as the product logit * rows;
//   logits [size]                            with respect to the logits, for a table of linear weights;
//   logits [size] and sums [size, dim]       for a factorization machine, whose gradient is logit * (sum - weights). With signs, sums
//                                            already includes them: logit * (sum - sign * weights).
struct Gradient {
    const float* rows = nullptr;
    const float* logits = nullptr;
    const float* sums = nullptr;
    const float* signs = nullptr;  // [dim]
    Mask mask;  // the dropout mask of the gather
};

struct Update {
    Embeddings table;
    Optimizer optimizer;
    Gradient gradient;
};

// Writes the concatenated embeddings of every row to out [size, width].
void gather(const Kernels& kernels, const Minibatch& batch, const Embeddings& table, const Mask& mask, float* out, std::size_t threads);

// logits [size] = the sums of the linear weights (if `linear` is not null) plus the pair terms of a factorization machine (if `factors`
// is not null). sums [size, dim] receives the sums of the embeddings, which the update needs. signs [dim] are 1 or -1, or null; they
// multiply the pair terms and the sums of each dimension.
void score(const Kernels& kernels, const Minibatch& batch, const Embeddings* linear, const Embeddings* factors, const float* signs,
           float* logits, float* sums, std::size_t threads);

// Updates every distinct feature of the batch once, with its summed gradient; `step` counts from 1. The result is bit-identical for any
// number of threads: one thread processes a field, and sums follow the order of the rows.
void update(const Kernels& kernels, Minibatch& batch, std::span<const Update> updates, std::int64_t step, std::size_t threads);

// Updates the moving average of every row to the given step.
void finish_average(const Kernels& kernels, const Embeddings& table, std::int64_t step, std::size_t threads);

}  // namespace fm2
