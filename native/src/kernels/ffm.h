// The kernels for field-aware factorization machines, and their arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fm2/ffm.h"

namespace fm2 {

// A few rows of a batch, with pointers to their features' weights.
struct FfmTile {
    const FfmLayout& layout;
    std::size_t rows;
    float* const* weights;  // [rows, fields]
};

// The contribution of each block to the rows' logits.
using FfmTerms = float[FfmLayout::max_blocks][ffm_tile];

struct FfmKernels {
    // terms[b][row] = the sum of the pair terms of block b, and of its linear weights if it has any, for blocks [begin, end).
    void (*score)(const FfmTile& tile, std::size_t begin, std::size_t end, FfmTerms& terms);
    // Updates the weights of blocks [begin, end), row by row, with the gradients [rows] of the logits.
    void (*update)(const FfmTile& tile, std::size_t begin, std::size_t end, const float* gradients, const FfmOptimizers& optimizers);
};

}  // namespace fm2
