// Which instruction set the kernels use: chosen once, at the first call, by what the processor has.
#pragma once

#include <string>
#include <vector>

namespace fm2 {

// The levels compiled in that this processor can run, plainest first.
const std::vector<std::string>& cpu_levels();

// The level in use: the best of cpu_levels(), or the one that the environment variable FM2_SIMD names.
// Throws std::runtime_error where FM2_SIMD names a level that is not there.
const std::string& cpu_level();

}  // namespace fm2
