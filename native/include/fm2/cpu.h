// The instruction set of the kernels, chosen once, on first use.
#pragma once

#include <string>
#include <vector>

namespace fm2 {

// The compiled levels that this processor supports, slowest first.
const std::vector<std::string>& cpu_levels();

// The level in use: the last of cpu_levels(), or the one set by the environment variable FM2_SIMD.
// Throws std::runtime_error if FM2_SIMD is not one of cpu_levels().
const std::string& cpu_level();

}  // namespace fm2
