#include "fm2/attention.h"

#include <algorithm>
#include <vector>

#include "fm2/pool.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

constexpr std::size_t rows_a_task = 32;

std::size_t tasks_of(std::size_t rows) { return (rows + rows_a_task - 1) / rows_a_task; }

// Calls body(task, row, room) for every row, with room for what a row needs meanwhile.
template <class Body>
void for_rows(const AttentionShape& shape, std::size_t rows, std::size_t threads, const Body& body) {
    parallel_for(tasks_of(rows), threads, [&](std::size_t task) {
        std::vector<float> room(attention_room(shape));
        for (std::size_t row = task * rows_a_task; row < std::min(rows, (task + 1) * rows_a_task); ++row) body(task, row, room.data());
    });
}

// The matrices as kernels want them: below each other, with zeros behind; and lying across, side by side.
struct Matrices {
    Matrices(const AttentionShape& shape, const float* weights)
        : below(4 * shape.width() * in_lanes(shape.inputs)), beside(shape.inputs * in_lanes(4 * shape.width())) {
        for (std::size_t row = 0; row < 4 * shape.width(); ++row)
            for (std::size_t k = 0; k < shape.inputs; ++k)
                below[row * in_lanes(shape.inputs) + k] = beside[k * in_lanes(4 * shape.width()) + row] = weights[row * shape.inputs + k];
    }

    std::vector<float> below, beside;
};

}  // namespace

void attend(const Kernels& kernels, const AttentionShape& shape, const float* weights, const float* x, std::size_t rows, float* out,
            std::size_t threads) {
    const Matrices matrices(shape, weights);
    const std::size_t in = shape.fields * shape.inputs, to = shape.fields * shape.width();
    for_rows(shape, rows, threads, [&](std::size_t, std::size_t row, float* room) {
        kernels.attention.attend(shape, matrices.beside.data(), x + row * in, out + row * to, room);
    });
}

void follow_attention(const Kernels& kernels, const AttentionShape& shape, const float* weights, const float* x, const float* out,
                      const float* out_slopes, std::size_t rows, float* x_slopes, float* weights_slopes, std::size_t threads) {
    const Matrices matrices(shape, weights);
    const std::size_t in = shape.fields * shape.inputs, to = shape.fields * shape.width();
    std::vector<float> parts(tasks_of(rows) * matrices.below.size());  // what each task adds to the matrices' slopes
    for_rows(shape, rows, threads, [&](std::size_t task, std::size_t row, float* room) {
        kernels.attention.follow(shape, matrices.below.data(), matrices.beside.data(), x + row * in, out + row * to, out_slopes + row * to,
                                 x_slopes + row * in, parts.data() + task * matrices.below.size(), room);
    });
    for (std::size_t at = 0; at < shape.weights(); ++at) {
        const std::size_t place = at / shape.inputs * in_lanes(shape.inputs) + at % shape.inputs;
        weights_slopes[at] = 0;
        for (std::size_t task = 0; task < tasks_of(rows); ++task) weights_slopes[at] += parts[task * matrices.below.size() + place];
    }
}

}  // namespace fm2
