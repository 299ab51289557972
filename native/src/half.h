// Conversion between float32 and float16. Internal linkage: the kernels are compiled for several instruction sets, and the linker must not
// merge their copies.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace fm2 {
namespace {

// Returns the nearest float16, ties to even. Values beyond its range become the largest finite one.
[[maybe_unused]] inline std::uint16_t to_half(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), sign = bits >> 16 & 0x8000;
    const float size = std::min(std::fabs(value), 65504.0f);
    if (!(size >= 0x1p-14f)) return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(std::nearbyint(size * 0x1p24f)));
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(size), odd = magnitude >> 13 & 1;
    return static_cast<std::uint16_t>(sign | (((magnitude + 0xfff + odd) >> 13) - (112u << 10)));
}

[[maybe_unused]] inline float from_half(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16, magnitude = half & 0x7fff;
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;  // correct for subnormal numbers too
    const bool finite = magnitude < 0x7c00;
    return std::bit_cast<float>(sign | (finite ? std::bit_cast<std::uint32_t>(scaled) : 0x7f800000u | magnitude << 13));
}

}  // namespace
}  // namespace fm2
