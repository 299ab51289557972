// Embedding tables: batches of rows are looked up in them, and gradients move them.
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

// The buffers of one table; they belong to the caller, and are layout.floats long where nothing else is said.
struct Embeddings {
    const Layout* layout = nullptr;
    float* weights = nullptr;
    float* state[2] = {};             // what the optimizer remembers
    const float* l2_scale = nullptr;  // or, per feature, what its l2 is multiplied with
    // The moving average of the weights, a = decay * a + (1 - decay) * w after every step, or null. A row's average is brought
    // up to date when the row moves: touched, per feature, is the step for which it is true.
    float* average = nullptr;
    std::int32_t* touched = nullptr;
    float decay = 0;
};

// The gradient of the loss in a batch's weights, given as one of:
//   rows [size, width]                       with respect to the gathered (and masked) rows themselves;
//   logits [size] and rows [size, width]     the same, which is logit * rows;
//   logits [size]                            with respect to the logits, for a table of linear weights;
//   logits [size] and sums [size, dim]       the same for a factorization machine, whose gradient is logit * (sum - weights);
//                                            with signs, sums has them already: logit * (sum - sign * weights).
struct Gradient {
    const float* rows = nullptr;
    const float* logits = nullptr;
    const float* sums = nullptr;
    const float* signs = nullptr;  // [dim]
    Mask mask;  // that of the gather
};

struct Update {
    Embeddings table;
    Optimizer optimizer;
    Gradient gradient;
};

// out [size, width]: every row's embeddings side by side.
void gather(const Kernels& kernels, const Minibatch& batch, const Embeddings& table, const Mask& mask, float* out, std::size_t threads);

// logits [size] = the rows' sums of linear weights (where there are such) and a factorization machine's pair terms (likewise).
// sums [size, dim] gets the sums of the rows' embeddings, which the update needs. signs [dim], or null, are 1 or -1: what a coordinate's
// pair terms count, and its sums are multiplied by.
void score(const Kernels& kernels, const Minibatch& batch, const Embeddings* linear, const Embeddings* factors, const float* signs,
           float* logits, float* sums, std::size_t threads);

// Every distinct feature of the batch moves once, by its summed gradient; `step` counts from 1. The result is the same, bit for
// bit, for any number of threads: a field is one thread's work, and sums run in the order of the rows.
void update(const Kernels& kernels, Minibatch& batch, std::span<const Update> updates, std::int64_t step, std::size_t threads);

// Brings the average of every row up to the given step.
void finish_average(const Kernels& kernels, const Embeddings& table, std::int64_t step, std::size_t threads);

}  // namespace fm2
