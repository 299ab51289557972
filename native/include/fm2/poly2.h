// Degree-2 polynomials (the paper's equation 3): a weight for every feature, and one for every pair of features, found by hashing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fm2/minibatch.h"
#include "fm2/optimizer.h"

namespace fm2 {

struct Kernels;

// The buffers belong to the caller. A weight stands in a cell of `cell` floats, with what its optimizer remembers behind it, so
// that a pair costs one cache line, not two or three.
struct Poly2 {
    static constexpr std::int32_t max_hash_bits = 30, max_fields = 1024;

    // How many floats a rule's cell has at least: w, then Adagrad's n, or FTRL's z and n. A power of two crosses no cache line.
    static std::size_t cell_of(const Optimizer& optimizer) { return optimizer.rule == Optimizer::Rule::ftrl ? 4 : 2; }

    std::int32_t hash_bits = 0;  // 0: there are no pairs, and this is logistic regression
    std::size_t cell = 0;
    float* pairs = nullptr;   // [2^hash_bits, cell]
    float* linear = nullptr;  // [features, cell], field after field
    float* bias = nullptr;    // [cell]
};

struct Poly2Optimizers {
    Optimizer pairs, linear;  // both Adagrad, or both FTRL; the bias moves as the linear weights do, without l1 and l2
};

// A feature's key; src/fm2/models/hashing.py says the same in Python, and why.
inline std::uint64_t poly2_key(std::size_t field, std::int32_t id) {
    std::uint64_t z = (std::uint64_t{field} << 32 | static_cast<std::uint32_t>(id)) + 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (z ^ z >> 31) | 1;
}

// Two features with these keys share the weight of this number with others.
inline std::uint32_t poly2_place(std::uint64_t a, std::uint64_t b, std::int32_t hash_bits) {
    return static_cast<std::uint32_t>(a * b >> (64 - hash_bits));
}

// Rows that are scored before the first of them moves a weight; the result depends on it. Without pairs a row is so little work that
// threads, which wait for each other after every tile, need more of them.
constexpr std::size_t max_poly2_tile = 256;
inline std::size_t poly2_tile(const Poly2& model) { return model.hash_bits ? 32 : max_poly2_tile; }

// logits [batch.size()]
void poly2_score(const Kernels& kernels, const Poly2& model, const Minibatch& batch, float* logits, std::size_t threads);

// Learns from the batch, tile after tile: the rows of a tile are scored, then move the weights one after the other, each with its
// own label and weight (null: 1). Returns the weighted mean of the log loss, as each row had it before it moved anything.
// The result is the same, bit for bit, for any number of threads: a weight is one thread's work, and rows keep their order.
double poly2_step(const Kernels& kernels, const Poly2& model, const Minibatch& batch, const float* labels, const float* weights,
                  const Poly2Optimizers& optimizers, std::size_t threads);

}  // namespace fm2
