// What the kernels of compiled models are told, and the functions that exist once per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fm2/plans.h"

namespace fm2 {

struct ScoringKernels {
    // logits[row] of ids [rows, fields], which are within their fields. `room` has the plan's room() floats, zeros at first.
    void (*score_prefixes)(const PrefixPlan& plan, const std::int32_t* ids, std::size_t rows, float* logits, float* room);
    void (*score_squares)(const SquaresPlan& plan, const std::int32_t* ids, std::size_t rows, float* logits);
    void (*score_partners)(const PartnersPlan& plan, const std::int32_t* ids, std::size_t rows, float* logits);
    // out[r] = <row r, vector> for rows of `width` floats that lie `stride` apart.
    void (*dots)(const float* rows, std::size_t stride, std::size_t count, const float* vector, std::size_t width, float* out);
    // The numbers of a part (0 or 1) of a feature's row, as floats; returns the linear weight.
    float (*unpack)(Number number, const RowLayout& layout, const std::byte* row, std::size_t part, float* out);
    // Of one field, for rows whose ids lie `apart`: out [rows, stride] = the embeddings, own [rows] += the linear weights.
    void (*embed)(Number number, const PrefixField& field, const std::int32_t* ids, std::size_t apart, std::size_t rows, float* out,
                  std::size_t stride, float* own);
    // own[row] += <product, what stands before>, of fields that have all products cached as float32. Their ids are in some columns, and
    // those of a row lie `apart` from the next row's. The vectors have zeros, or what stands behind, up to a multiple of eight.
    void (*add_products)(std::span<const PrefixField> fields, const std::size_t* columns, const std::int32_t* ids, std::size_t apart,
                         std::size_t rows, const float* vectors, std::size_t stride, float* own);
    // out += the numbers of the first part; returns the linear weight.
    float (*add)(Number number, const RowLayout& layout, const std::byte* row, float* out);
};

}  // namespace fm2
