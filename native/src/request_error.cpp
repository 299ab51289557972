#include "fm2/request_error.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "fm2/cells.h"

namespace fm2 {
namespace {

// The number of insertions, deletions, replacements and swaps of neighbors that turn one text into the other.
std::size_t edits(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), current(b.size() + 1);
    std::iota(last.begin(), last.end(), 0);
    for (std::size_t i = 1; i <= a.size(); ++i) {
        current[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            current[j] = std::min({last[j] + 1, current[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) current[j] = std::min(current[j], before[j - 2] + 1);
        }
        before.swap(last);
        last.swap(current);
    }
    return last[b.size()];
}

}  // namespace

std::string suggest(std::string_view name, std::span<const std::string> names) {
    constexpr std::size_t longest = 200, listed = 40;
    std::size_t fewest = std::min(name.size(), std::size_t{8}) / 3 + 1;  // more is another word
    const std::string* closest = nullptr;
    for (const std::string& valid : names) {
        if (name.size() > longest || valid.size() > longest) continue;
        const std::size_t needed = edits(name, valid);
        if (needed > fewest || needed >= std::max(name.size(), valid.size()) || (closest && needed == fewest)) continue;
        fewest = needed;
        closest = &valid;
    }
    if (closest) return "did you mean '" + *closest + "'?";
    std::string text = "choose from ";
    for (std::size_t i = 0; i < std::min(names.size(), listed); ++i) text += (i ? ", " : "") + names[i];
    return names.size() > listed ? text + ", ..." : text;
}

std::string quoted(std::string_view text) {
    std::string quoted(1, '\'');
    quoted += excerpt(text);
    quoted += '\'';
    return quoted;
}

}  // namespace fm2
