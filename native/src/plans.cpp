#include "fm2/plans.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "fm2/pool.h"
#include "half.h"

namespace fm2 {
namespace {

void pack_f16(const float* from, std::size_t count, std::byte* to, float& error) {
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint16_t half = to_half(from[i]);
        std::memcpy(to + 2 * i, &half, 2);
        error = std::max(error, std::fabs(from_half(half) - from[i]));
    }
}

// Returns the scale.
float pack_i8(const float* from, std::size_t count, std::byte* to, float& error) {
    float largest = 0;
    for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(from[i]));
    const float scale = largest / 127;
    for (std::size_t i = 0; i < count; ++i) {
        const float level = scale > 0 ? std::nearbyint(from[i] / scale) : 0;
        to[i] = static_cast<std::byte>(static_cast<std::int8_t>(std::clamp(level, -127.0f, 127.0f)));
        error = std::max(error, std::fabs(level * scale - from[i]));
    }
    return scale;
}

// Writes the numbers of one part of a row and returns their scale; `error` becomes the largest rounding error so far.
float pack_part(Dtype dtype, const float* from, std::size_t count, std::byte* to, float& error) {
    if (dtype == Dtype::i8) return pack_i8(from, count, to, error);
    if (dtype == Dtype::f16) pack_f16(from, count, to, error);
    else std::memcpy(to, from, count * sizeof(float));
    return 1;
}

}  // namespace

float pack_rows(Dtype dtype, const RowLayout& layout, std::size_t rows, const float* first, const float* second, const float* linear,
                std::byte* out, std::size_t threads) {
    constexpr std::size_t rows_per_task = 1024;
    std::vector<float> errors((rows + rows_per_task - 1) / rows_per_task);
    parallel_for(errors.size(), threads, [&](std::size_t task) {
        for (std::size_t r = task * rows_per_task; r < std::min(rows, (task + 1) * rows_per_task); ++r) {
            std::byte* row = out + r * layout.stride;
            std::fill(row, row + layout.stride, std::byte{});
            float scales[2]{};
            if (layout.first) scales[0] = pack_part(dtype, first + r * layout.first, layout.first, row, errors[task]);
            if (layout.second)
                scales[1] = pack_part(dtype, second + r * layout.second, layout.second, row + layout.second_at, errors[task]);
            std::memcpy(row + layout.linear_at, linear + r, sizeof(float));
            if (dtype == Dtype::i8) std::memcpy(row + layout.scales_at, scales, sizeof scales);
        }
    });
    return errors.empty() ? 0 : *std::max_element(errors.begin(), errors.end());
}

float MatrixPlan::entry(const MatrixField& a, std::size_t i, const MatrixField& b, std::size_t j) const {
    if (a.offset < b.offset) return entry(b, j, a, i);
    if (diagonal && i != j) return 0;
    const float* row = a.matrix + (diagonal ? 0 : i * a.cached_layout.first);
    for (const auto [begin, length] : ranges_of(a)) {
        const std::size_t within = b.offset + j - begin;  // huge if the range begins later
        if (within < length) return row[within];
        row += length;
    }
    return 0;
}

RowLayout::RowLayout(Dtype dtype, std::size_t first, std::size_t second) : first(first), second(second) {
    // Long rows start at a cache line, so the groups of eight numbers in them do too.
    constexpr std::size_t line = 64, long_row = 4 * line, unit = 4;
    const auto rounded = [](std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; };
    second_at = padded(first) * dtype_size(dtype);
    linear_at = rounded(second_at + second * dtype_size(dtype), unit);
    scales_at = linear_at + unit;
    const std::size_t bytes = scales_at + (dtype == Dtype::i8 ? 2 * unit : 0);
    stride = rounded(bytes, bytes >= long_row ? line : unit);
}

}  // namespace fm2
