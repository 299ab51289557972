// Embedding tables: lookups for batches of rows, and sparse optimizer steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fm2/minibatch.h"
#include "fm2/training.h"

namespace fm2 {

// The layout of a table: one flat buffer of floats that stores each field's rows contiguously. Row r of field f starts at offset[f] + r *
// dim[f] in the buffer and occupies the columns from start[f] in a gathered row.
struct Layout {
    static constexpr std::int32_t max_dim = 1024;

    // Fields with the same offset, dimension and size share their rows, and thus their features. Throws std::invalid_argument if fields
    // overlap otherwise, or if a dimension or a size is out of range.
    Layout(std::vector<std::int64_t> offset, std::vector<std::int32_t> dim, std::vector<std::int32_t> size);

    std::size_t fields() const { return dim.size(); }

    std::vector<std::int64_t> offset;
    std::vector<std::int32_t> dim, size;
    std::vector<std::int32_t> start;  // first column of a field in a gathered row
    std::vector<std::int64_t> first;  // number of a field's first feature, counted over all fields; shared ones count once
    std::vector<std::size_t> owner;   // the first field with the same rows: the field itself unless they are shared
    std::int64_t floats = 0;          // length of the buffer
    std::int64_t features = 0;        // of all fields together; shared ones count once
    bool shares = false;              // whether any rows are shared
    std::int32_t width = 0;           // of a gathered row: the sum of the dimensions
    bool equal_dims = true;
};

// Dropout on gathered embeddings: the probabilities of dropping a single element of V, and all elements of a field in a row. The remaining
// elements are divided by the probability of keeping them, so dropout does not change the expectation.
struct Dropout {
    float element = 0, field = 0;
    std::uint64_t seed = 0;
    float value = 0;  // of single values of a multi-valued field, which Minibatch::load drops
    std::vector<std::size_t> numbers = {};  // the fields whose lists are the features of one number, of which none is dropped
    std::vector<std::uint32_t> rows = {};   // the numbers of the rows in a larger batch, if the batch is a part of one
    std::shared_ptr<const HiddenFeatures> hidden = {};  // which Minibatch::load replaces by the unknown one

    void check() const;  // throws std::invalid_argument if a probability is not at least 0 and below 1
};

// The mask of one batch, which is hashed and not stored: m(row of the batch, column) is 0 or 1 / ((1 - element) (1 - field)). It depends
// only on the seed and the step. The forward pass uses V = m * weights, so the gradient of the weights is m * dL/dV.
struct Mask {
    Mask() = default;
    Mask(const Dropout& dropout, std::uint64_t step);

    std::uint64_t key = 0;
    std::uint32_t element = 0, field = 0;  // thresholds: a hash below one means dropped
    float scale = 1;
    const std::uint32_t* rows = nullptr;  // their numbers, or null; must outlive the mask

    explicit operator bool() const { return element || field; }
};

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
    bool keep_zeros = false;  // weights that are zero, such as pruned ones, get no gradient
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
// number of threads: one thread processes a field, or all fields that share rows, and sums follow the order of the rows.
void update(const Kernels& kernels, Minibatch& batch, std::span<const Update> updates, std::int64_t step, std::size_t threads);

// Updates the moving average of every row to the given step.
void finish_average(const Kernels& kernels, const Embeddings& table, std::int64_t step, std::size_t threads);

}  // namespace fm2
