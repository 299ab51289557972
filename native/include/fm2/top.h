// Finds the rows with the largest inner products, or the largest scores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fm2 {

struct Kernels;

struct TopRow {
    float score;
    std::int64_t row;
};

// Returns the k rows with the largest <row, vector>, best first; the earlier of equal rows comes first, and NaN comes last. Rows have
// `width` floats and are `stride` apart. The result does not depend on the number of threads.
std::vector<TopRow> top_rows(const Kernels& kernels, const float* rows, std::size_t stride, std::size_t count, const float* vector,
                             std::size_t width, std::size_t k, std::size_t threads);

// The same for given scores.
std::vector<TopRow> top_scores(const float* scores, std::size_t count, std::size_t k);

}  // namespace fm2
