#include "fm2/tree_masks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace fm2 {

namespace {

// The number of thresholds below a number, which are all if it is not a number. Compares with all of them: a search would wait for each
// comparison.
std::size_t count_below(std::span<const float> thresholds, float number) {
    std::uint32_t count = 0;
    for (const float threshold : thresholds) count += !(number <= threshold);
    return count;
}

}  // namespace

float LeafSum::total() const {
    float total = 0;
    for (const float sum : sums_) total += sum;
    return total;
}

bool TreeMasks::open(std::span<const std::int32_t> roots, std::span<const TreeNode> nodes, std::span<const float> leaves,
                     std::size_t inputs) {
    large_ = {};
    return small_.open(roots, nodes, leaves, inputs) || large_.open(roots, nodes, leaves, inputs);
}

template <class Mask>
bool LeafMasks<Mask>::open(std::span<const std::int32_t> roots, std::span<const TreeNode> nodes, std::span<const float> leaves,
                           std::size_t inputs) {
    *this = {};
    const auto is_nan = [](const TreeNode& node) { return std::isnan(node.threshold); };
    if (roots.size() > max_trees || nodes.size() > max_nodes || inputs > max_inputs || std::ranges::any_of(nodes, is_nan)) return false;
    padded_ = (roots.size() + tile - 1) / tile * tile;
    leaves_.assign(padded_ * max_leaves, 0);
    std::vector<std::vector<std::pair<float, Entry>>> by_input(inputs);
    for (std::size_t tree = 0; tree < roots.size(); ++tree)
        if (!add_tree(tree, roots[tree], nodes, leaves, by_input)) return false;
    for (auto& found : by_input) {
        std::ranges::stable_sort(found, {}, [](const auto& entry) { return entry.first; });
        begins_.push_back(entries_.size());
        first_rows_.push_back(row_thresholds_.size());
        std::vector<Mask> masks(padded_, static_cast<Mask>(~0));
        for (std::size_t i = 0; i < found.size(); ++i) {
            const auto& [threshold, entry] = found[i];
            thresholds_.push_back(threshold);
            entries_.push_back(entry);
            masks[entry.tree] &= entry.kept;
            if ((i + 1) % step) continue;
            row_thresholds_.push_back(threshold);
            rows_.insert(rows_.end(), masks.begin(), masks.end());
        }
    }
    begins_.push_back(entries_.size());
    first_rows_.push_back(row_thresholds_.size());
    trees_ = roots.size();
    return true;
}

// Numbers the leaves from left to right, and adds what each node rules out. In a damaged file, nodes may have several parents, or form a
// long chain. A tree with few leaves is not deep.
template <class Mask>
bool LeafMasks<Mask>::add_tree(std::size_t tree, std::int32_t root, std::span<const TreeNode> nodes, std::span<const float> leaves,
                               std::vector<std::vector<std::pair<float, Entry>>>& by_input) {
    std::size_t count = 0;
    const auto visit = [&](const auto& self, std::int32_t at, std::size_t depth) -> bool {
        if (at < 0) {
            if (count == max_leaves) return false;
            leaves_[tree * max_leaves + count++] = leaves[static_cast<std::size_t>(~at)];
            return true;
        }
        if (depth == max_leaves) return false;
        const TreeNode& node = nodes[static_cast<std::size_t>(at)];
        const std::size_t first = count;
        if (!self(self, node.next[0], depth + 1)) return false;
        if (count == max_leaves) return false;  // the right child needs one, too
        const std::uint64_t left = (std::uint64_t{1} << count) - (std::uint64_t{1} << first);
        if (++entries_seen_ > nodes.size()) return false;  // nodes with several parents
        by_input[node.input].push_back({node.threshold, {static_cast<Mask>(~left), static_cast<std::uint16_t>(tree)}});
        return self(self, node.next[1], depth + 1);
    };
    return visit(visit, root, 0);
}

// Writes the bits that a tile of the masks in all rows have in common.
template <class Mask>
void LeafMasks<Mask>::combine(std::span<const Mask* const> rows, std::size_t first, Mask* out) {
    using Vector [[gnu::vector_size(16), gnu::aligned(sizeof(Mask)), gnu::may_alias]] = std::uint64_t;
    constexpr std::size_t vectors = 4;
    static_assert(vectors * sizeof(Vector) == tile * sizeof(Mask));
    Vector a = ~Vector{}, b = a, c = a, d = a;  // in registers, unlike an array
    for (const Mask* row : rows) {
        const auto* masks = reinterpret_cast<const Vector*>(row + first);
        a &= masks[0];
        b &= masks[1];
        c &= masks[2];
        d &= masks[3];
    }
    auto* kept = reinterpret_cast<Vector*>(out);
    kept[0] = a;
    kept[1] = b;
    kept[2] = c;
    kept[3] = d;
}

template <class Mask>
float LeafMasks<Mask>::sum(const float* numbers) const {
    alignas(64) Mask masks[max_trees];
    const Mask* rows[max_inputs];
    std::uint32_t first[max_inputs], last[max_inputs];  // the entries of each input that no row has
    std::size_t used = 0;
    const std::size_t inputs = first_rows_.size() - 1;
    for (std::size_t input = 0; input < inputs; ++input) {
        const std::size_t first_row = first_rows_[input], row_count = first_rows_[input + 1] - first_row;
        const std::size_t below = count_below({row_thresholds_.data() + first_row, row_count}, numbers[input]);
        if (below) rows[used++] = rows_.data() + (first_row + below - 1) * padded_;
        const std::size_t begin = begins_[input] + below * step, size = std::min(step, begins_[input + 1] - begin);
        first[input] = static_cast<std::uint32_t>(begin);
        last[input] = static_cast<std::uint32_t>(begin + count_below({thresholds_.data() + begin, size}, numbers[input]));
    }
    for (std::size_t tree = 0; tree < padded_; tree += tile) combine({rows, used}, tree, masks + tree);
    for (std::size_t input = 0; input < inputs; ++input)
        for (std::uint32_t i = first[input]; i < last[input]; ++i) masks[entries_[i].tree] &= entries_[i].kept;
    LeafSum sum;
    for (std::size_t tree = 0; tree < padded_; ++tree)
        sum.add(tree, leaves_[tree * max_leaves + static_cast<std::size_t>(std::countr_zero(masks[tree]))]);
    return sum.total();
}

template class LeafMasks<std::uint16_t>;
template class LeafMasks<std::uint64_t>;

}  // namespace fm2
