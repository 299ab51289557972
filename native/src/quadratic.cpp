#include "fm2/quadratic.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "fm2/pool.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

constexpr std::size_t rows_a_task = 48;

std::size_t rounded_up(std::size_t count, std::size_t unit) { return (count + unit - 1) / unit; }

}  // namespace

QuadraticForm::QuadraticForm(const std::vector<std::int32_t>& dims) {
    std::int64_t width = 0;
    for (const std::int32_t dim : dims) {
        if (dim < 1 || dim > max_width) throw std::invalid_argument("quadratic form: a dimension is " + std::to_string(dim));
        width += dim;
    }
    if (width < 1 || width > max_width)
        throw std::invalid_argument("quadratic form: the dimensions add up to " + std::to_string(width) + ", which is not from 1 to " +
                                    std::to_string(max_width));
    std::size_t end = 0;
    for (const std::int32_t dim : dims) {
        end += static_cast<std::size_t>(dim);
        for (std::int32_t row = 0; row < dim; ++row) {
            after_.push_back(end);
            offset_.push_back(weights_);
            weights_ += static_cast<std::size_t>(width) - end;
        }
    }
    panels_.resize(rounded_up(this->width(), panel_columns) * panel_columns * this->width());
}

void QuadraticForm::lay_out(const float* weights, std::size_t panel) {
    const std::size_t first = panel * panel_columns, last = std::min(width(), first + panel_columns);
    for (std::size_t row = 0; row < width(); ++row) {
        float* to = panels_.data() + (panel * width() + row) * panel_columns;
        for (std::size_t column = first; column < last; ++column) {
            const std::size_t above = std::min(row, column), beside = std::max(row, column);
            to[column - first] = beside < after_[above] ? 0 : weights[offset_[above] + beside - after_[above]];
        }
    }
}

void QuadraticForm::score(const Kernels& kernels, const float* weights, const float* w, const float* rows, std::size_t count,
                          float* logits, float* products, std::size_t threads) {
    constexpr std::size_t narrow = 200;  // what is laid out before a second thread has woken
    parallel_for(rounded_up(width(), panel_columns), width() < narrow ? 1 : threads, [&](std::size_t panel) { lay_out(weights, panel); });
    parallel_for(rounded_up(count, rows_a_task), threads, [&](std::size_t task) {
        const std::size_t begin = task * rows_a_task, some = std::min(rows_a_task, count - begin);
        const float* from = rows + begin * width();
        float* to = products + begin * width();
        kernels.quadratic.multiply(from, some, width(), panels_.data(), to);
        kernels.quadratic.finish(from, some, width(), w, to, logits + begin);
    });
}

void QuadraticForm::follow(const Kernels& kernels, const float* rows, std::size_t count, const float* slopes, float* weights_slope,
                           float* w_slope, std::size_t threads) const {
    parallel_for(rounded_up(width(), block_rows), threads, [&](std::size_t task) {
        const std::size_t begin = task * block_rows, first = begin / panel_columns * panel_columns;
        const std::size_t stride = rounded_up(width() - first, panel_columns) * panel_columns;
        std::vector<float> outer(block_rows * stride);
        float sums[block_rows];
        kernels.quadratic.outer_products(rows, count, width(), slopes, begin, outer.data(), stride, sums);
        for (std::size_t row = begin; row < std::min(width(), begin + block_rows); ++row) {
            const float* from = outer.data() + (row - begin) * stride;
            std::copy(from + (after_[row] - first), from + (width() - first), weights_slope + offset_[row]);
            if (w_slope) w_slope[row] = sums[row - begin];
        }
    });
}

}  // namespace fm2
