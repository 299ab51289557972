// The best of many: inner products of one vector with rows, of which the largest are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fm2 {

struct Kernels;

struct Found {
    float score;
    std::int64_t row;
};

// The k rows with the largest <row, vector>, best first; of equal ones the earlier row comes first. Rows have `width` floats and lie
// `stride` apart. The result is the same for any number of threads.
std::vector<Found> top_rows(const Kernels& kernels, const float* rows, std::size_t stride, std::size_t count, const float* vector,
                            std::size_t width, std::size_t k, std::size_t threads);

// The same of scores that are known.
std::vector<Found> top_scores(const float* scores, std::size_t count, std::size_t k);

}  // namespace fm2
