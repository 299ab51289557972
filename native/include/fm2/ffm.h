// Field-aware factorization machines (the paper's equation 5): scoring, and training row by row.
//
// A feature has a vector for every other field. The vectors of field i's features for j, and of j's for i, are used by the pair (i, j)
// only. The pairs are therefore divided into blocks. One thread processes a block, forward and backward, so threads share no weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fm2/minibatch.h"
#include "fm2/training.h"

namespace fm2 {

// The layout of the weights: a flat buffer of floats with a row of `stride` floats for every feature. The fields are divided into a few
// groups of neighbors. A row has a section for each group: [count, dim] vectors for the group's fields, then Adagrad's [count] sums of
// squares, one per vector. A feature needs no vector for its own field; that slot stores its linear weight (and zeros) and its sum of
// squares. Sections fill whole cache lines, so threads do not share any.
struct FfmLayout {
    static constexpr std::int32_t max_fields = 1024, max_dim = 1024;
    static constexpr std::size_t max_blocks = 10;

    struct Group {
        std::int32_t first, count;   // fields
        std::int32_t offset, floats;  // position and length of the section in a row
    };

    // The pairs of fields in groups a < b; if a = b, all pairs within the group and its linear weights.
    struct Block {
        std::size_t a, b;
    };

    // Throws std::invalid_argument if a size or the dimension is out of range.
    FfmLayout(std::vector<std::int32_t> sizes, std::int32_t dim);

    std::size_t fields() const { return sizes.size(); }

    std::vector<std::int32_t> sizes;
    std::int32_t dim;
    std::vector<std::int64_t> first;   // number of a field's first feature, counted over all fields
    std::vector<std::size_t> group;    // of a field
    std::vector<Group> groups;
    std::vector<Block> blocks;  // blocks without common groups first, so that runs of blocks are good shares for threads
    std::int32_t stride = 0;
    std::int64_t features = 0;
    std::int64_t floats = 0;  // length of the buffer
};

// The caller owns the buffers. The table should be aligned to a cache line.
struct Ffm {
    const FfmLayout* layout = nullptr;
    float* table = nullptr;  // layout->floats
    float* bias = nullptr;   // the bias and its sum of squares
};

// The vector of a multi-valued field i for field j is the weighted sum of its values' vectors, p_ij = Σ_a w_a v_aj, and its linear weight
// the weighted sum of theirs. Values of the same field do not interact.
//
// Adagrad with one sum of squares per vector. With the gradient g of a vector of K weights, including l2 times the vector:
//   n += |g|² / K        v -= rate g / √(n + ε²)
// For a linear weight and the bias K is 1; the bias has no l2. With the gradient s of the logit, the gradient of value a's vector for j is
// s w_a p_ji, and that of its linear weight s w_a, plus l2. A row updates its values one after the other: a value that occurs twice is
// updated twice, and the second time l2 and n refer to the result of the first. All p are those before the row's first update.
struct FfmOptimizers {
    Optimizer vectors, linear;
};

// The number of rows that are scored before the first of them updates a weight. The result depends on it; a small tile stays in cache.
constexpr std::size_t ffm_tile = 32;

// logits [batch.size()]
void ffm_score(const Kernels& kernels, const Ffm& model, const Minibatch& batch, float* logits, std::size_t threads);

// Trains on the batch, tile by tile: scores the rows of a tile, then updates the weights row by row, each with its own label and weight
// (null: 1). Returns the weighted mean of the log loss, measured before each row's update. The result is bit-identical for any number
// of threads.
double ffm_step(const Kernels& kernels, const Ffm& model, const Minibatch& batch, const float* labels, const float* weights,
                const FfmOptimizers& optimizers, std::size_t threads);

// Copy the weights of features [begin, begin + count) from and to dense arrays: vectors [count, fields - 1, dim] for the other fields in
// order, and linear [count]. ffm_write sets every sum of squares to `squares`.
void ffm_write(const Ffm& model, std::int64_t begin, std::size_t count, const float* vectors, const float* linear, float squares,
               std::size_t threads);
void ffm_read(const Ffm& model, std::int64_t begin, std::size_t count, float* vectors, float* linear, std::size_t threads);

}  // namespace fm2
