// What the kernels of field-aware factorization machines are told, and the functions that exist once per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fm2/ffm.h"

namespace fm2 {

// A few rows of a batch: where the weights of their features stand.
struct FfmTile {
    const FfmLayout& layout;
    std::size_t rows;
    float* const* weights;  // [rows, fields]
};

// What each block adds to the rows' logits.
using FfmTerms = float[FfmLayout::max_blocks][ffm_tile];

struct FfmKernels {
    // terms[b][row] = the sum of the pair terms in block b, and of its linear weights if it has some, for blocks [begin, end).
    void (*score)(const FfmTile& tile, std::size_t begin, std::size_t end, FfmTerms& terms);
    // Moves the weights of blocks [begin, end), row after row, by the slopes [rows] of the loss in the logits.
    void (*move)(const FfmTile& tile, std::size_t begin, std::size_t end, const float* slopes, const FfmOptimizers& optimizers);
};

}  // namespace fm2
