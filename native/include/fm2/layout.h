// Where the features' weights lie in a table: one flat buffer of floats, a run of equally long rows for every field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fm2 {

// Row r of field f begins at offset[f] + r * dim[f] of the buffer, and stands in the columns from start[f] of a gathered row.
struct Layout {
    static constexpr std::int32_t max_dim = 1024;

    // Throws std::invalid_argument where fields overlap, or where a dimension or a size is out of bounds.
    Layout(std::vector<std::int64_t> offset, std::vector<std::int32_t> dim, std::vector<std::int32_t> size);

    std::size_t fields() const { return dim.size(); }

    std::vector<std::int64_t> offset;
    std::vector<std::int32_t> dim, size;
    std::vector<std::int32_t> start;  // a field's first column in a gathered row
    std::vector<std::int64_t> first;  // a field's first feature, counted over all fields
    std::int64_t floats = 0;          // how long a buffer has to be
    std::int64_t features = 0;        // of all fields
    std::int32_t width = 0;           // of a gathered row: the sum of the dimensions
    bool equal_dims = true;
};

}  // namespace fm2
