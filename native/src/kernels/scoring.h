// The kernels of compiled models: functions that exist once per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fm2/plans.h"

namespace fm2 {

struct ScoringKernels {
    // Write the logits [rows] of ids [rows, fields], which must be valid. `scratch` has the plan's scratch_floats().
    void (*score_matrices)(const MatrixPlan& plan, const std::int32_t* ids, std::size_t rows, float* logits, float* scratch);
    void (*score_sums)(const SumsPlan& plan, const std::int32_t* ids, std::size_t rows, float* logits);
    void (*score_field_aware)(const FieldAwarePlan& plan, const std::int32_t* ids, std::size_t rows, float* logits);
    // Writes the numbers of a part (0 or 1) of a feature row as floats; returns the linear weight.
    float (*unpack)(Dtype dtype, const RowLayout& layout, const std::byte* row, std::size_t part, float* out);
    // Adds the numbers of the first part of a feature row to `out`; returns the linear weight.
    float (*accumulate)(Dtype dtype, const RowLayout& layout, const std::byte* row, float* out);
    // For one field and rows whose ids are `id_stride` apart: writes the embeddings to out [rows, stride] and adds the linear weights to
    // linear [rows].
    void (*embed)(Dtype dtype, const MatrixField& field, const std::int32_t* ids, std::size_t id_stride, std::size_t rows, float* out,
                  std::size_t stride, float* linear);
    // Adds the pair terms <product, preceding embeddings> of fields whose products are all cached as float32 to terms [rows]. The ids of
    // field f are in columns[f] of rows that are `id_stride` apart. `vectors` [rows, stride] is readable up to a multiple of eight.
    void (*add_products)(std::span<const MatrixField> fields, const std::size_t* columns, const std::int32_t* ids, std::size_t id_stride,
                         std::size_t rows, const float* vectors, std::size_t stride, float* terms);
    // Writes <row r, vector> to out[r], for `count` rows of `width` floats that are `stride` apart.
    void (*inner_products)(const float* rows, std::size_t stride, std::size_t count, const float* vector, std::size_t width, float* out);
};

}  // namespace fm2
