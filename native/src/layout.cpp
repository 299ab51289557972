#include "fm2/layout.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

namespace fm2 {
namespace {

[[noreturn]] void refuse(std::size_t field, const std::string& why) {
    throw std::invalid_argument("layout: field " + std::to_string(field) + " " + why);
}

void check_apart(const Layout& layout) {
    std::vector<std::size_t> order(layout.fields());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](std::size_t f) { return layout.offset[f]; });
    std::int64_t end = 0;
    for (const std::size_t f : order) {
        if (layout.offset[f] < end) refuse(f, "begins before the field in front of it ends");
        end = layout.offset[f] + static_cast<std::int64_t>(layout.size[f]) * layout.dim[f];
    }
}

}  // namespace

Layout::Layout(std::vector<std::int64_t> offsets, std::vector<std::int32_t> dims, std::vector<std::int32_t> sizes)
    : offset(std::move(offsets)), dim(std::move(dims)), size(std::move(sizes)) {
    if (dim.empty() || offset.size() != dim.size() || size.size() != dim.size())
        throw std::invalid_argument("layout: offset, dim and size need one entry for every field, and one field at least");
    for (std::size_t f = 0; f < fields(); ++f) {
        if (dim[f] < 1 || dim[f] > max_dim) refuse(f, "has the dimension " + std::to_string(dim[f]) + ", not 1 to 1024");
        if (size[f] < 1) refuse(f, "has " + std::to_string(size[f]) + " features; it needs one at least");
        if (offset[f] < 0 || offset[f] > std::int64_t{1} << 48) refuse(f, "begins at " + std::to_string(offset[f]));
        if (width > std::numeric_limits<std::int32_t>::max() - dim[f]) refuse(f, "makes rows longer than 2^31");
        start.push_back(width);
        first.push_back(features);
        width += dim[f];
        features += size[f];
        floats = std::max(floats, offset[f] + static_cast<std::int64_t>(size[f]) * dim[f]);
        equal_dims = equal_dims && dim[f] == dim[0];
    }
    check_apart(*this);
}

}  // namespace fm2
