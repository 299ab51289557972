// One side of a quadratic form that is divided into a context's fields and a candidate's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"

namespace fm2 {

// Where the embeddings of a side's fields stand in a vector, and what the fields have among themselves. The largest fields come first;
// their pairs are computed as one form. The small ones at the end have tables of the side's own, with their features' products with all
// that stands before, as far as there is room: that saves most of the arithmetic.
class Side {
public:
    Side(const PrefixPlan& plan, std::span<const std::size_t> numbers);
    Side(const Side&) = delete;  // fields point into tables
    Side& operator=(const Side&) = delete;

    std::size_t width() const { return width_; }

    // vectors [rows, stride]: embeddings side by side, and zeros up to padded(width()), which the stride is at least.
    // own: linear weights and the terms of the side's own pairs.
    void gather(const Kernels& kernels, const std::int32_t* ids, std::size_t rows, float* vectors, std::size_t stride, float* own) const;

    // S between this side and another: [width, other's width].
    std::vector<float> matrix_with(const Side& other) const;

private:
    struct alignas(64) Line {
        std::byte bytes[64];
    };

    void make_form(std::size_t fields);
    void make_table(std::size_t place);

    const PrefixPlan& plan_;
    std::vector<std::size_t> columns_;        // of ids, by place
    std::vector<const PrefixField*> origins_;  // as the plan has them
    std::vector<PrefixField> fields_;         // as they stand here
    std::vector<std::vector<Line>> tables_;   // of the small fields
    std::size_t width_ = 0, formed_ = 0, form_width_ = 0;
    std::vector<float> panels_;        // of the form
    std::vector<std::size_t> depths_;  // of the panels
};

}  // namespace fm2
