// The layout of an embedding table: one flat buffer of floats that stores each field's rows contiguously.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fm2 {

// Row r of field f starts at offset[f] + r * dim[f] in the buffer and occupies the columns from start[f] in a gathered row.
struct Layout {
    static constexpr std::int32_t max_dim = 1024;

    // Throws std::invalid_argument if fields overlap, or if a dimension or a size is out of range.
    Layout(std::vector<std::int64_t> offset, std::vector<std::int32_t> dim, std::vector<std::int32_t> size);

    std::size_t fields() const { return dim.size(); }

    std::vector<std::int64_t> offset;
    std::vector<std::int32_t> dim, size;
    std::vector<std::int32_t> start;  // first column of a field in a gathered row
    std::vector<std::int64_t> first;  // number of a field's first feature, counted over all fields
    std::int64_t floats = 0;          // length of the buffer
    std::int64_t features = 0;        // of all fields together
    std::int32_t width = 0;           // of a gathered row: the sum of the dimensions
    bool equal_dims = true;
};

}  // namespace fm2
