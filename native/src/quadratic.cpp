#include "fm2/quadratic.h"

#include <algorithm>

#include "fm2/expect.h"
#include "fm2/pool.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

constexpr std::size_t rows_per_task = 48;

std::size_t divide_up(std::size_t count, std::size_t unit) { return (count + unit - 1) / unit; }

}  // namespace

QuadraticForm::QuadraticForm(const std::vector<std::int32_t>& dims) {
    std::int64_t width = 0;
    for (const std::int32_t dim : dims) {
        expect(dim >= 1 && dim <= max_width, "quadratic form: a dimension must be between 1 and ", max_width, ", got ", dim);
        width += dim;
    }
    expect(width >= 1 && width <= max_width, "quadratic form: the dimensions must sum to at most ", max_width, ", got ", width);
    std::size_t end = 0;
    for (const std::int32_t dim : dims) {
        end += static_cast<std::size_t>(dim);
        for (std::int32_t row = 0; row < dim; ++row) {
            after_.push_back(end);
            offset_.push_back(weights_);
            weights_ += static_cast<std::size_t>(width) - end;
        }
    }
    panels_.resize(divide_up(this->width(), panel_columns) * panel_columns * this->width());
}

void QuadraticForm::fill_panel(const float* weights, std::size_t panel) {
    const std::size_t first = panel * panel_columns, last = std::min(width(), first + panel_columns);
    for (std::size_t row = 0; row < width(); ++row) {
        float* to = panels_.data() + (panel * width() + row) * panel_columns;
        for (std::size_t column = first; column < last; ++column) {
            const std::size_t lower = std::min(row, column), upper = std::max(row, column);
            to[column - first] = upper < after_[lower] ? 0 : weights[offset_[lower] + upper - after_[lower]];
        }
    }
}

void QuadraticForm::score(const Kernels& kernels, const float* weights, const float* w, const float* rows, std::size_t count, float* logits,
                          float* products, std::size_t threads) {
    constexpr std::size_t narrow = 200;  // below this width, one thread is done before a second one wakes up
    parallel_for(divide_up(width(), panel_columns), width() < narrow ? 1 : threads, [&](std::size_t panel) { fill_panel(weights, panel); });
    parallel_ranges(count, rows_per_task, threads, [&](std::size_t begin, std::size_t end) {
        const std::size_t size = end - begin;
        const float* from = rows + begin * width();
        float* to = products + begin * width();
        kernels.quadratic.multiply(from, size, width(), panels_.data(), to);
        kernels.quadratic.finish(from, size, width(), w, to, logits + begin);
    });
}

void QuadraticForm::backward(const Kernels& kernels, const float* rows, std::size_t count, const float* gradients, float* weight_gradients,
                             float* linear_gradient, std::size_t threads) const {
    parallel_for(divide_up(width(), block_rows), threads, [&](std::size_t task) {
        const std::size_t begin = task * block_rows, first = begin / panel_columns * panel_columns;
        const std::size_t stride = divide_up(width() - first, panel_columns) * panel_columns;
        std::vector<float> outer(block_rows * stride);
        float sums[block_rows];
        kernels.quadratic.outer_products(rows, count, width(), gradients, begin, outer.data(), stride, sums);
        for (std::size_t row = begin; row < std::min(width(), begin + block_rows); ++row) {
            const float* from = outer.data() + (row - begin) * stride;
            std::copy(from + (after_[row] - first), from + (width() - first), weight_gradients + offset_[row]);
            if (linear_gradient) linear_gradient[row] = sums[row - begin];
        }
    });
}

}  // namespace fm2
