#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "fm2/ffm.h"

namespace fm2 {
namespace {

constexpr std::int32_t most_groups = 4;         // ten blocks: enough for as many threads as memory can feed
constexpr std::int32_t floats_a_cache_line = 16;

// Where the groups begin, and where the last ends. Kernels take four fields at a time on one side of a pair, the later one:
// where there are enough fields, all groups but the first are multiples of four.
std::vector<std::int32_t> group_bounds(std::int32_t fields) {
    const std::int32_t groups = std::min(fields, most_groups);
    std::vector<std::int32_t> bounds;
    for (std::int32_t g = 0; g <= groups; ++g) {
        const std::int32_t rest = fields - fields * g / groups;
        bounds.push_back(fields - (fields < 4 * groups || g == 0 ? rest : (rest + 2) / 4 * 4));
    }
    return bounds;
}

// First the pairs between the two halves of the groups, then those within each.
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
    const auto expect = [](bool fits, const std::string& message) {
        if (!fits) throw std::invalid_argument("ffm: " + message);
    };
    expect(fields() >= 2, "two fields at least are needed");
    expect(fields() <= max_fields, "there are " + std::to_string(fields()) + " fields; the most are " + std::to_string(max_fields));
    expect(dim >= 1 && dim <= max_dim, "the dimension is " + std::to_string(dim) + "; it goes from 1 to " + std::to_string(max_dim));
    for (const std::int32_t size : sizes) {
        expect(size >= 1, "a field needs one feature at least");
        first.push_back(features);
        features += size;
    }
    const std::vector<std::int32_t> bounds = group_bounds(static_cast<std::int32_t>(fields()));
    for (std::size_t g = 0; g + 1 < bounds.size(); ++g) {
        const std::int32_t count = bounds[g + 1] - bounds[g];
        const std::int32_t floats_needed = count * (dim + 1);
        const std::int32_t section = (floats_needed + floats_a_cache_line - 1) / floats_a_cache_line * floats_a_cache_line;
        groups.push_back({bounds[g], count, stride, section});
        group.insert(group.end(), static_cast<std::size_t>(count), g);
        stride += section;
    }
    floats = features * stride;
    add_blocks(0, groups.size(), blocks);
}

}  // namespace fm2
