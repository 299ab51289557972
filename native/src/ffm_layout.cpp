#include <algorithm>

#include "fm2/expect.h"
#include "fm2/ffm.h"

namespace fm2 {
namespace {

constexpr std::int32_t max_groups = 4;  // ten blocks: enough for as many threads as the memory bandwidth can feed
constexpr std::int32_t floats_per_cache_line = 16;

// Returns where each group begins, and where the last one ends. Kernels process four fields at a time on the later side of a pair, so
// with enough fields, the size of every group but the first is a multiple of four.
std::vector<std::int32_t> group_bounds(std::int32_t fields) {
    const std::int32_t groups = std::min(fields, max_groups);
    std::vector<std::int32_t> bounds;
    for (std::int32_t g = 0; g <= groups; ++g) {
        const std::int32_t remaining = fields - fields * g / groups;
        bounds.push_back(fields - (fields < 4 * groups || g == 0 ? remaining : (remaining + 2) / 4 * 4));
    }
    return bounds;
}

// Adds the pairs between the two halves of the groups, then those within each half.
void add_blocks(std::size_t begin, std::size_t end, std::vector<FfmLayout::Block>& blocks) {
    if (end - begin == 1) return blocks.push_back({begin, begin});
    const std::size_t middle = (begin + end) / 2;
    for (std::size_t a = begin; a < middle; ++a)
        for (std::size_t b = middle; b < end; ++b) blocks.push_back({a, b});
    add_blocks(begin, middle, blocks);
    add_blocks(middle, end, blocks);
}

}  // namespace

FfmLayout::FfmLayout(std::vector<std::int32_t> all_sizes, std::int32_t all_dim) : sizes(std::move(all_sizes)), dim(all_dim) {
    expect(fields() >= 2 && fields() <= max_fields, "ffm: the number of fields must be between 2 and ", max_fields, ", got ", fields());
    expect(dim >= 1 && dim <= max_dim, "ffm: the dimension must be between 1 and ", max_dim, ", got ", dim);
    for (const std::int32_t size : sizes) {
        expect(size >= 1, "ffm: every field needs at least one feature, got ", size);
        first.push_back(features);
        features += size;
    }
    const std::vector<std::int32_t> bounds = group_bounds(static_cast<std::int32_t>(fields()));
    for (std::size_t g = 0; g + 1 < bounds.size(); ++g) {
        const std::int32_t count = bounds[g + 1] - bounds[g];
        const std::int32_t lines = (count * (dim + 1) + floats_per_cache_line - 1) / floats_per_cache_line;
        const std::int32_t section = lines * floats_per_cache_line;
        groups.push_back({bounds[g], count, stride, section});
        group.insert(group.end(), static_cast<std::size_t>(count), g);
        stride += section;
    }
    floats = features * stride;
    add_blocks(0, groups.size(), blocks);
}

}  // namespace fm2
