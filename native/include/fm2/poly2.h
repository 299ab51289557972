// Degree-2 polynomials (the paper's equation 3): a weight for every feature, and a hashed weight for every pair of features.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fm2/minibatch.h"
#include "fm2/training.h"

namespace fm2 {

// The caller owns the buffers. A cell of `cell` floats stores a weight and its optimizer state, so a pair costs one cache line instead of
// two or three.
struct Poly2 {
    static constexpr std::int32_t max_hash_bits = 30, max_fields = 1024;
    static constexpr std::size_t max_pairs = std::size_t{1} << 22;  // of values in a row; those of a few rows are stored

    // The minimum number of floats per cell: w, then n (Adagrad) or z and n (FTRL). A power of two never crosses a cache line.
    static std::size_t cell_of(const Optimizer& optimizer) { return optimizer.rule == Optimizer::Rule::ftrl ? 4 : 2; }

    std::int32_t hash_bits = 0;  // 0: no pairs, which is logistic regression
    std::size_t cell = 0;
    float* pairs = nullptr;   // [2^hash_bits, cell]
    float* linear = nullptr;  // [features, cell], field after field
    float* bias = nullptr;    // [cell]
};

// The values of a multi-valued field have weights: value a contributes w_a times its linear weight, and the pair of values a and b of two
// fields w_a w_b times the pair's weight. Values of the same field do not form pairs. With the gradient s of the logit, the gradients of
// these weights are s w_a and s w_a w_b. Every occurrence in a row updates its weight separately, in order: fields first, then positions in
// the list, and pairs in the order of their first value, then their second. A value that occurs twice, or two pairs that share a weight,
// therefore cause two updates, and the second one starts from the result of the first.
struct Poly2Optimizers {
    Optimizer pairs, linear;  // both Adagrad or both FTRL; the bias uses `linear` without l1 and l2
};

// The hash key of a feature. src/fm2/models/hashing.py implements the same function in Python and explains it.
inline std::uint64_t poly2_key(std::size_t field, std::int32_t id) {
    std::uint64_t z = (std::uint64_t{field} << 32 | static_cast<std::uint32_t>(id)) + 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (z ^ z >> 31) | 1;
}

// The weight of the pair of features with these keys; several pairs may share it.
inline std::uint32_t poly2_place(std::uint64_t a, std::uint64_t b, std::int32_t hash_bits) {
    return static_cast<std::uint32_t>(a * b >> (64 - hash_bits));
}

// The number of rows that are scored before the first of them updates a weight; the result depends on it. Threads wait for each other
// after every tile; without pairs, a row is so little work that they need larger tiles.
constexpr std::size_t max_poly2_tile = 256;
inline std::size_t poly2_tile(const Poly2& model) { return model.hash_bits ? 32 : max_poly2_tile; }

// logits [batch.size()]
void poly2_score(const Kernels& kernels, const Poly2& model, const Minibatch& batch, float* logits, std::size_t threads);

// Trains on the batch, tile by tile: scores the rows of a tile, then updates the weights row by row, each with its own label and weight
// (null: 1). Returns the weighted mean of the log loss, measured before each row's update. The result is bit-identical for any number
// of threads: one thread updates a weight, in the order of the rows.
double poly2_step(const Kernels& kernels, const Poly2& model, const Minibatch& batch, const float* labels, const float* weights,
                  const Poly2Optimizers& optimizers, std::size_t threads);

}  // namespace fm2
