#include "fm2/plans.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "fm2/pool.h"

namespace fm2 {
namespace {

// The nearest float16; ties go to the even one. Beyond its range it is the largest there is.
std::uint16_t to_half(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), sign = bits >> 16 & 0x8000;
    const float size = std::min(std::fabs(value), 65504.0f);
    if (!(size >= 0x1p-14f)) return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(std::nearbyint(size * 0x1p24f)));
    const std::uint32_t rest = std::bit_cast<std::uint32_t>(size), odd = rest >> 13 & 1;
    return static_cast<std::uint16_t>(sign | (((rest + 0xfff + odd) >> 13) - (112u << 10)));
}

float from_half(std::uint16_t half) {
    const float size = std::bit_cast<float>(static_cast<std::uint32_t>(half & 0x7fff) << 13) * 0x1p112f;
    return half & 0x8000 ? -size : size;
}

// Numbers of one part of a row; gives the scale, and notes the largest error.
float pack(Number number, const float* from, std::size_t count, std::byte* to, float& error) {
    if (number == Number::f32) {
        std::memcpy(to, from, count * sizeof(float));
        return 1;
    }
    if (number == Number::f16) {
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint16_t half = to_half(from[i]);
            std::memcpy(to + 2 * i, &half, 2);
            error = std::max(error, std::fabs(from_half(half) - from[i]));
        }
        return 1;
    }
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

}  // namespace

float pack_rows(Number number, const RowLayout& layout, std::size_t rows, const float* first, const float* second, const float* linear,
                std::byte* out, std::size_t threads) {
    constexpr std::size_t rows_a_task = 1024;
    std::vector<float> errors((rows + rows_a_task - 1) / rows_a_task);
    parallel_for(errors.size(), threads, [&](std::size_t task) {
        for (std::size_t r = task * rows_a_task; r < std::min(rows, (task + 1) * rows_a_task); ++r) {
            std::byte* row = out + r * layout.stride;
            std::fill(row, row + layout.stride, std::byte{});
            float scales[2]{};
            if (layout.first) scales[0] = pack(number, first + r * layout.first, layout.first, row, errors[task]);
            if (layout.second) scales[1] = pack(number, second + r * layout.second, layout.second, row + layout.second_at, errors[task]);
            std::memcpy(row + layout.linear_at, linear + r, sizeof(float));
            if (number == Number::i8) std::memcpy(row + layout.scales_at, scales, sizeof scales);
        }
    });
    return errors.empty() ? 0 : *std::max_element(errors.begin(), errors.end());
}

float PrefixPlan::entry(const PrefixField& a, std::size_t i, const PrefixField& b, std::size_t j) const {
    if (a.start < b.start) return entry(b, j, a, i);
    if (diagonal && i != j) return 0;
    const float* row = a.matrix + (diagonal ? 0 : i * a.whole.first);
    for (const Stretch& stretch : std::span(stretches).subspan(a.first_stretch, a.stretches)) {
        const std::size_t within = b.start + j - stretch.begin;  // huge where the stretch begins later
        if (within < stretch.length) return row[within];
        row += stretch.length;
    }
    return 0;
}

RowLayout::RowLayout(Number number, std::size_t first, std::size_t second) : first(first), second(second) {
    // Long rows begin with a cache line, and so does every eighth of their numbers.
    constexpr std::size_t line = 64, long_row = 4 * line, unit = 4;
    const auto rounded = [](std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; };
    second_at = padded(first) * number_size(number);
    linear_at = rounded(second_at + second * number_size(number), unit);
    scales_at = linear_at + unit;
    const std::size_t bytes = scales_at + (number == Number::i8 ? 2 * unit : 0);
    stride = rounded(bytes, bytes >= long_row ? line : unit);
}

}  // namespace fm2
