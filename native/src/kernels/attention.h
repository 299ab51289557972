// The attention kernels. They process one row.
#pragma once

#include <cstddef>

#include "fm2/attention.h"

namespace fm2 {

constexpr std::size_t attention_lane = 8;  // rows of matrices are padded with zeros to a multiple of this

inline std::size_t in_lanes(std::size_t count) { return (count + attention_lane - 1) / attention_lane * attention_lane; }

// The number of floats for a row's intermediate results and their gradients.
inline std::size_t attention_scratch_size(const AttentionShape& shape) {
    const std::size_t fields = in_lanes(shape.fields), projected = 4 * shape.width();
    return 2 * fields * fields + 3 * fields * in_lanes(shape.dim) + 2 * fields * in_lanes(projected) +
           (2 * fields + projected) * in_lanes(shape.inputs);
}

// `weights` is [4 width, inputs] and `transposed` is [inputs, 4 width], both with padded rows.
struct AttentionKernels {
    void (*forward)(const AttentionShape& shape, const float* transposed, const float* x, float* out, float* scratch);
    // Writes the gradients of x; adds to the gradients of the weights, which have padded rows too.
    void (*backward)(const AttentionShape& shape, const float* weights, const float* transposed, const float* x, const float* out,
                     const float* out_gradients, float* x_gradients, float* weight_gradients, float* scratch);
};

}  // namespace fm2
