// One side, context or candidate, of a quadratic form whose fields are divided into these two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "aligned_buffer.h"
#include "kernels/kernels.h"

namespace fm2 {

// Computes the concatenated embeddings of a side's fields and the pair terms among these fields. The multi-valued and the largest fields
// come first; their pairs are computed as one quadratic form. The small fields at the end, as many as the memory limit allows, get tables
// with the products of each feature and all preceding fields: that saves most of the arithmetic.
class Side {
public:
    // lists[f] is 1 if field f of the plan is multi-valued.
    Side(const MatrixPlan& plan, std::span<const std::size_t> fields, std::span<const std::uint8_t> lists);
    Side(const Side&) = delete;  // fields_ points into tables_
    Side& operator=(const Side&) = delete;

    std::size_t width() const { return width_; }

    // Writes vectors [rows, stride]: the concatenated embeddings, and zeros up to padded(width()), which is the smallest stride. Writes
    // parts [rows]: linear weights plus the terms of pairs within the side.
    void gather(const Kernels& kernels, const Rows& rows, float* vectors, std::size_t stride, float* parts) const;

    // Returns S between this side and another: [width, other's width].
    std::vector<float> matrix_with(const Side& other) const;

private:
    void make_form();
    void make_table(std::size_t index);

    const MatrixPlan& plan_;
    std::vector<std::size_t> columns_;         // of the ids, in the side's order of fields
    std::vector<const MatrixField*> origins_;  // the plan's fields, in this order
    std::vector<MatrixField> fields_;          // the same with the side's offsets and tables
    std::vector<AlignedBuffer> tables_;        // of the small fields
    std::size_t width_ = 0;
    std::size_t form_fields_ = 0, form_width_ = 0;  // the fields in the form, and their columns
    std::vector<float> panels_;                     // of the form
    std::vector<std::size_t> depths_;  // of the panels
};

}  // namespace fm2
