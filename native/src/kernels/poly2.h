// What the kernels of degree-2 polynomials are told, and the functions that exist once per instruction set.
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
    std::uint32_t* places;          // [rows, pairs] of the pairs' weights, which scoring finds

    std::size_t pairs() const { return poly2_pairs(model, fields); }
};

// One of several parts of the weights.
struct Poly2Part {
    std::size_t number, of;  // number < of
    std::uint32_t* room;     // [2, pairs + 1]
};

// A few rows of a batch for logistic regression, which needs no rows side by side: a thread has some of the fields to itself, and
// their weights stay in its processor's cache.
struct LinearTile {
    static constexpr std::size_t group_fields = 4;  // whose weights are summed on their own; the result depends on it

    const Poly2& model;
    const Minibatch& batch;
    const std::uint64_t* first;  // [fields] the number of each field's first feature
    std::size_t begin, rows;

    std::size_t groups() const { return (batch.fields() + group_fields - 1) / group_fields; }
    std::size_t begin_of(std::size_t group) const { return std::min(batch.fields(), group * group_fields); }
};

struct Poly2Kernels {
    // logits[row] for rows [begin, end).
    void (*score)(const Poly2Tile& tile, std::size_t begin, std::size_t end, float* logits);
    // Moves a part of the weights, row after row, by the slopes [rows] of the loss in the logits.
    void (*move)(const Poly2Tile& tile, const Poly2Part& part, const float* slopes, const Poly2Optimizers& optimizers);
    // sums[row] of the weights of a group of fields.
    void (*sum_group)(const LinearTile& tile, std::size_t group, float* sums);
    // Moves the weights of the groups number, number + of, ..., row after row; the part 0 moves the bias too.
    void (*move_groups)(const LinearTile& tile, const Poly2Part& part, const float* slopes, const Optimizer& optimizer);
};

}  // namespace fm2
