#include "fm2/attention.h"

#include <algorithm>
#include <vector>

#include "fm2/pool.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

constexpr std::size_t rows_per_task = 32;

std::size_t tasks_for(std::size_t rows) { return (rows + rows_per_task - 1) / rows_per_task; }

// Calls body(task, row, scratch) for every row.
template <class Body>
void for_rows(const AttentionShape& shape, std::size_t rows, std::size_t threads, const Body& body) {
    parallel_for(tasks_for(rows), threads, [&](std::size_t task) {
        std::vector<float> scratch(attention_scratch_size(shape));
        const std::size_t end = std::min(rows, (task + 1) * rows_per_task);
        for (std::size_t row = task * rows_per_task; row < end; ++row) body(task, row, scratch.data());
    });
}

// The matrices in the forms that kernels use: [4 width, inputs] and transposed, both with padded rows.
struct Matrices {
    Matrices(const AttentionShape& shape, const float* weights)
        : padded(4 * shape.width() * in_lanes(shape.inputs)), transposed(shape.inputs * in_lanes(4 * shape.width())) {
        for (std::size_t row = 0; row < 4 * shape.width(); ++row)
            for (std::size_t k = 0; k < shape.inputs; ++k) {
                const float weight = weights[row * shape.inputs + k];
                padded[row * in_lanes(shape.inputs) + k] = weight;
                transposed[k * in_lanes(4 * shape.width()) + row] = weight;
            }
    }

    std::vector<float> padded, transposed;
};

}  // namespace

void attention_forward(const Kernels& kernels, const AttentionShape& shape, const float* weights, const float* x, std::size_t rows,
                       float* out, std::size_t threads) {
    const Matrices matrices(shape, weights);
    const std::size_t x_width = shape.fields * shape.inputs, out_width = shape.fields * shape.width();
    for_rows(shape, rows, threads, [&](std::size_t, std::size_t row, float* scratch) {
        kernels.attention.forward(shape, matrices.transposed.data(), x + row * x_width, out + row * out_width, scratch);
    });
}

void attention_backward(const Kernels& kernels, const AttentionShape& shape, const float* weights, const float* x, const float* out,
                        const float* out_gradients, std::size_t rows, float* x_gradients, float* weight_gradients, std::size_t threads) {
    const Matrices matrices(shape, weights);
    const std::size_t x_width = shape.fields * shape.inputs, out_width = shape.fields * shape.width(), size = matrices.padded.size();
    std::vector<float> task_gradients(tasks_for(rows) * size);  // the weight gradients of each task
    for_rows(shape, rows, threads, [&](std::size_t task, std::size_t row, float* scratch) {
        kernels.attention.backward(shape, matrices.padded.data(), matrices.transposed.data(), x + row * x_width, out + row * out_width,
                                   out_gradients + row * out_width, x_gradients + row * x_width, task_gradients.data() + task * size,
                                   scratch);
    });
    for (std::size_t i = 0; i < shape.weights(); ++i) {
        const std::size_t padded = i / shape.inputs * in_lanes(shape.inputs) + i % shape.inputs;
        weight_gradients[i] = 0;
        for (std::size_t task = 0; task < tasks_for(rows); ++task) weight_gradients[i] += task_gradients[task * size + padded];
    }
}

}  // namespace fm2
