// Field-aware factorization machines (the paper's equation 5): scores, and training row after row.
//
// A feature has a vector for every other field. Only the pair of fields i and j ever touches the vectors of i's features for j
// and of j's for i. So the pairs are divided into blocks, a block is one thread's work, forward and backward, and threads share
// no weights at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fm2/minibatch.h"
#include "fm2/optimizer.h"

namespace fm2 {

struct Kernels;

// Where the weights lie in one flat buffer of floats, which has a row of `stride` floats for every feature. The fields are cut into
// a few groups of neighbors, and for each group there is a section in the row: [count, dim] vectors for the group's fields, then
// [count] sums of squares that Adagrad remembers, one per vector. A feature needs no vector for its own field: there its linear
// weight stands instead (and zeros), with its sum of squares. Sections fill whole cache lines, which threads need not share then.
struct FfmLayout {
    static constexpr std::int32_t max_fields = 1024, max_dim = 1024;
    static constexpr std::size_t max_blocks = 10;

    struct Group {
        std::int32_t first, count;   // fields
        std::int32_t offset, floats;  // of the section in a row
    };

    // The pairs of fields in groups a < b, or all pairs within a group, and its linear weights, where a = b.
    struct Block {
        std::size_t a, b;
    };

    // Throws std::invalid_argument where sizes or the dimension are out of bounds.
    FfmLayout(std::vector<std::int32_t> sizes, std::int32_t dim);

    std::size_t fields() const { return sizes.size(); }

    std::vector<std::int32_t> sizes;
    std::int32_t dim;
    std::vector<std::int64_t> first;   // a field's first feature, counted over all fields
    std::vector<std::size_t> group;    // a field's
    std::vector<Group> groups;
    std::vector<Block> blocks;  // those that share no group first: consecutive ones make good shares for threads
    std::int32_t stride = 0;
    std::int64_t features = 0;
    std::int64_t floats = 0;  // how long the buffer has to be
};

// The buffers belong to the caller. It is well if the table begins a cache line.
struct Ffm {
    const FfmLayout* layout = nullptr;
    float* table = nullptr;  // layout->floats
    float* bias = nullptr;   // the bias and its sum of squares
};

// Adagrad with one sum of squares per vector: with the gradient g of a vector of K weights, to which l2 times the vector is added,
//   n += |g|² / K        v -= rate g / √(n + ε²)
// For a linear weight and the bias K is 1; the bias has no l2.
struct FfmOptimizers {
    Optimizer vectors, linear;
};

// Rows that are scored before the first of them moves a weight. The result depends on it, for the memory's sake it is small.
constexpr std::size_t ffm_tile = 32;

// logits [batch.size()]
void ffm_score(const Kernels& kernels, const Ffm& model, const Minibatch& batch, float* logits, std::size_t threads);

// Learns from the batch, tile after tile: the rows of a tile are scored, then move the weights one after the other, each with its
// own label and weight (null: 1). Returns the weighted mean of the log loss, as each row had it before it moved anything.
// The result is the same, bit for bit, for any number of threads.
double ffm_step(const Kernels& kernels, const Ffm& model, const Minibatch& batch, const float* labels, const float* weights,
                const FfmOptimizers& optimizers, std::size_t threads);

// Features [begin, begin + count), from and to plain arrays: vectors [count, fields - 1, dim], for the other fields in their
// order, and linear [count]. Writing sets every sum of squares to `squares`.
void ffm_write(const Ffm& model, std::int64_t begin, std::size_t count, const float* vectors, const float* linear, float squares,
               std::size_t threads);
void ffm_read(const Ffm& model, std::int64_t begin, std::size_t count, float* vectors, float* linear, std::size_t threads);

}  // namespace fm2
