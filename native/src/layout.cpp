#include "fm2/layout.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "fm2/expect.h"

namespace fm2 {
namespace {

void check_no_overlap(const Layout& layout) {
    std::vector<std::size_t> order(layout.fields());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](std::size_t f) { return layout.offset[f]; });
    std::int64_t end = 0;
    for (const std::size_t f : order) {
        expect(layout.offset[f] >= end, "layout: field ", f, " overlaps with another field");
        end = layout.offset[f] + static_cast<std::int64_t>(layout.size[f]) * layout.dim[f];
    }
}

}  // namespace

Layout::Layout(std::vector<std::int64_t> offsets, std::vector<std::int32_t> dims, std::vector<std::int32_t> sizes)
    : offset(std::move(offsets)), dim(std::move(dims)), size(std::move(sizes)) {
    expect(!dim.empty() && offset.size() == dim.size() && size.size() == dim.size(),
           "layout: offset, dim and size must have one entry per field, and at least one");
    for (std::size_t f = 0; f < fields(); ++f) {
        expect(dim[f] >= 1 && dim[f] <= max_dim, "layout: field ", f, ": the dimension must be between 1 and ", max_dim, ", got ", dim[f]);
        expect(size[f] >= 1, "layout: field ", f, " needs at least one feature, got ", size[f]);
        expect(offset[f] >= 0 && offset[f] <= std::int64_t{1} << 48, "layout: field ", f, ": offset out of range: ", offset[f]);
        expect(width <= std::numeric_limits<std::int32_t>::max() - dim[f], "layout: field ", f, ": a row would have 2^31 or more columns");
        start.push_back(width);
        first.push_back(features);
        width += dim[f];
        features += size[f];
        floats = std::max(floats, offset[f] + static_cast<std::int64_t>(size[f]) * dim[f]);
        equal_dims = equal_dims && dim[f] == dim[0];
    }
    check_no_overlap(*this);
}

}  // namespace fm2
