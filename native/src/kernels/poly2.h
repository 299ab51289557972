// The kernels for degree-2 polynomials, and their arguments.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "fm2/poly2.h"

namespace fm2 {

inline std::size_t poly2_pairs(const Poly2& model, std::size_t fields) { return model.hash_bits ? fields * (fields - 1) / 2 : 0; }

// A few rows of a batch.
struct Poly2Tile {
    const Poly2& model;
    std::size_t fields, rows;
    const std::uint64_t* features;  // [rows, fields], counted over all fields
    const std::uint64_t* keys;      // [rows, fields]
    std::uint32_t* buckets;         // [rows, pairs] the pairs' weights; written by `score`

    std::size_t pairs() const { return poly2_pairs(model, fields); }
};

// One of several shares of the weights.
struct Poly2Part {
    std::size_t number, of;  // number < of
    std::uint32_t* scratch;     // [2, pairs + 1]
};

// A few rows of a batch for logistic regression. Each thread processes some of the fields, whose weights stay in its processor's
// cache.
struct LinearTile {
    static constexpr std::size_t group_fields = 4;  // fields whose weights are summed separately; the result depends on it

    const Poly2& model;
    const Minibatch& batch;
    const std::uint64_t* first;  // [fields] number of each field's first feature
    std::size_t begin, rows;

    std::size_t groups() const { return (batch.fields() + group_fields - 1) / group_fields; }
    std::size_t begin_of(std::size_t group) const { return std::min(batch.fields(), group * group_fields); }
};

struct Poly2Kernels {
    // logits[row] for rows [begin, end).
    void (*score)(const Poly2Tile& tile, std::size_t begin, std::size_t end, float* logits);
    // Updates a part of the weights, row by row, with the gradients [rows] of the logits.
    void (*update)(const Poly2Tile& tile, const Poly2Part& part, const float* gradients, const Poly2Optimizers& optimizers);
    // sums[row] = the sum of the weights of a group of fields.
    void (*sum_group)(const LinearTile& tile, std::size_t group, float* sums);
    // Updates the weights of the groups number, number + of, ..., row by row; part 0 also updates the bias.
    void (*update_groups)(const LinearTile& tile, const Poly2Part& part, const float* gradients, const Optimizer& optimizer);
};

}  // namespace fm2
