// What the kernels of attention are told, and the functions that exist once per instruction set. They take one row.
#pragma once

#include <cstddef>

#include "fm2/attention.h"

namespace fm2 {

constexpr std::size_t attention_lane = 8;  // columns of matrices are rounded up to a multiple of this, with zeros

inline std::size_t in_lanes(std::size_t count) { return (count + attention_lane - 1) / attention_lane * attention_lane; }

// Room for what lies between a row's input and output, and for its slopes.
inline std::size_t attention_room(const AttentionShape& shape) {
    const std::size_t n = in_lanes(shape.fields), four = 4 * shape.width();
    return 2 * n * n + 3 * n * in_lanes(shape.dim) + 2 * n * in_lanes(four) + (2 * n + four) * in_lanes(shape.inputs);
}

// Matrices lie `beside` each other as [inputs, 4 width], rounded up, or `below` as [4 width, inputs], rounded up.
struct AttentionKernels {
    void (*attend)(const AttentionShape& shape, const float* beside, const float* x, float* out, float* room);
    // Writes the slopes in x; adds to those in the matrices, which lie below each other.
    void (*follow)(const AttentionShape& shape, const float* below, const float* beside, const float* x, const float* out,
                   const float* out_slopes, float* x_slopes, float* below_slopes, float* room);
};

}  // namespace fm2
