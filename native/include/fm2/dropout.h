// Dropout on gathered embeddings: which elements of V go, told by a hash, so that nothing has to be stored.
#pragma once

#include <cstdint>

namespace fm2 {

// With these probabilities an element of V, and a field of a row as a whole, becomes zero; what stays is divided by the
// probability of staying, so that the expectation is the same with and without dropout.
struct Dropout {
    float element = 0, field = 0;
    std::uint64_t seed = 0;
};

// The mask of one batch: m(row of the batch, column) is 0 or 1 / ((1 - element) (1 - field)), the same at every call with the
// same seed and step. The forward pass sees V = m * (weights), so the weights' gradient is m * dL/dV.
struct Mask {
    Mask() = default;
    Mask(const Dropout& dropout, std::uint64_t step);

    std::uint64_t key = 0;
    std::uint32_t element = 0, field = 0;  // a draw below this means: dropped
    float scale = 1;

    explicit operator bool() const { return element || field; }
};

}  // namespace fm2
