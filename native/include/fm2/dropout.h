// Dropout on gathered embeddings. A hash decides which elements are dropped, so no mask is stored.
#pragma once

#include <cstdint>

namespace fm2 {

// The probabilities of dropping a single element of V, and all elements of a field in a row. The remaining elements are divided by the
// probability of keeping them, so dropout does not change the expectation.
struct Dropout {
    float element = 0, field = 0;
    std::uint64_t seed = 0;
};

// The mask of one batch: m(row of the batch, column) is 0 or 1 / ((1 - element) (1 - field)). It depends only on the seed and the step.
// The forward pass uses V = m * weights, so the gradient of the weights is m * dL/dV.
struct Mask {
    Mask() = default;
    Mask(const Dropout& dropout, std::uint64_t step);

    std::uint64_t key = 0;
    std::uint32_t element = 0, field = 0;  // thresholds: a hash below one means dropped
    float scale = 1;

    explicit operator bool() const { return element || field; }
};

}  // namespace fm2
