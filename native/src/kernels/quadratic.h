// The kernels for quadratic forms.
#pragma once

#include <cstddef>

namespace fm2 {

constexpr std::size_t panel_columns = 16, block_rows = 24;

struct QuadraticKernels {
    // products [count, width] = rows [count, width] times S, which is stored in panels [width / 16, rounded up][width][16].
    void (*multiply)(const float* rows, std::size_t count, std::size_t width, const float* panels, float* products);
    // products += w; logits += 1/2 vᵀ (product) + wᵀ v.
    void (*finish)(const float* rows, std::size_t count, std::size_t width, const float* w, float* products, float* logits);
    // outer [24, stride] = rows [begin, begin + 24) of Σ gradient v vᵀ, starting at column `begin` rounded down to a multiple of 16;
    // rows from `width` on are zero. sums [24] = Σ gradient v.
    void (*outer_products)(const float* rows, std::size_t count, std::size_t width, const float* gradients, std::size_t begin, float* outer,
                           std::size_t stride, float* sums);
    // forms[row] += vᵀ U v for rows v that are `stride` floats long. U is stored in panels like S above; the columns of a panel are zero
    // from row `depths[panel]` on.
    void (*add_forms)(const float* rows, std::size_t stride, std::size_t count, std::size_t width, const float* panels,
                      const std::size_t* depths, float* forms);
};

}  // namespace fm2
