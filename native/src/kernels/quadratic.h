// What the kernels of quadratic forms are told, and the functions that exist once per instruction set.
#pragma once

#include <cstddef>

namespace fm2 {

constexpr std::size_t panel_columns = 16, block_rows = 24;

struct QuadraticKernels {
    // products [count, width] = rows [count, width] times S, which lies in panels [width / 16, rounded up][width][16].
    void (*multiply)(const float* rows, std::size_t count, std::size_t width, const float* panels, float* products);
    // products += w; logits += 1/2 vᵀ (product) + wᵀ v.
    void (*finish)(const float* rows, std::size_t count, std::size_t width, const float* w, float* products, float* logits);
    // outer [24, stride] = the rows [begin, begin + 24) of Σ slope v vᵀ, from the column `begin` rounded down to 16 on; rows from
    // `width` on are zero. sums [24] = Σ slope v.
    void (*outer_products)(const float* rows, std::size_t count, std::size_t width, const float* slopes, std::size_t begin, float* outer,
                           std::size_t stride, float* sums);
    // forms[row] += vᵀ U v for rows v that lie `stride` apart; U lies in panels as S does above, and the columns of a panel are zero from
    // the row `depths[panel]` on.
    void (*add_forms)(const float* rows, std::size_t stride, std::size_t count, std::size_t width, const float* panels,
                      const std::size_t* depths, float* forms);
};

}  // namespace fm2
