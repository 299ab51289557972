// Trees with few leaves, evaluated without walking through them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fm2 {

// A node of a tree. The children are later nodes, or ~leaf.
struct TreeNode {
    std::uint32_t input;
    float threshold;
    std::int32_t next[2];  // if the number of the input is at most the threshold, and otherwise

    bool is_above(float number) const { return !(number <= threshold); }
};
static_assert(sizeof(TreeNode) == 4 * sizeof(std::uint32_t));

// The sum of the leaves that a row reaches, which does not depend on how they are found: tree t belongs to the partial sum t % lanes.
class LeafSum {
public:
    static constexpr std::size_t lanes = 8;

    void add(std::size_t tree, float leaf) { sums_[tree % lanes] += leaf; }
    float total() const;

private:
    float sums_[lanes] = {};
};

// A tree has a bit for each of its leaves, from left to right. A node whose number is above its threshold rules out the leaves below its
// left child; the first leaf that no node rules out is the one that the row reaches (Lucchese et al., "QuickScorer", 2015). The nodes of
// all trees that read an input are sorted by their thresholds, so those to apply come first. For every `step`-th of them there is a row
// with the masks of all trees after it: what is left are a few nodes per input, and products of rows, which need no branches.
template <class Mask>
class LeafMasks {
public:
    static constexpr std::size_t max_leaves = 8 * sizeof(Mask), max_nodes = 1 << 16, max_inputs = 1024;
    static constexpr std::size_t max_trees = 8192 / sizeof(Mask);  // 4096 or 1024

    // Prepares trees whose nodes and leaves exist; returns false if there are too many of them, or if a threshold is not a number.
    bool open(std::span<const std::int32_t> roots, std::span<const TreeNode> nodes, std::span<const float> leaves, std::size_t inputs);
    bool is_open() const { return trees_ > 0; }
    // Returns the sum of the leaves that a row with these inputs reaches.
    float sum(const float* numbers) const;

private:
    static constexpr std::size_t step = sizeof(Mask) == 2 ? 16 : 32, tile = 64 / sizeof(Mask);
    struct Entry {
        Mask kept;
        std::uint16_t tree;
    };

    static void combine(std::span<const Mask* const> rows, std::size_t first, Mask* out);
    bool add_tree(std::size_t tree, std::int32_t root, std::span<const TreeNode> nodes, std::span<const float> leaves,
                  std::vector<std::vector<std::pair<float, Entry>>>& by_input);

    std::size_t entries_seen_ = 0;
    std::size_t trees_ = 0, padded_ = 0;   // the latter is a multiple of `tile`
    std::vector<float> leaves_;            // [padded_, max_leaves]
    std::vector<std::size_t> begins_;      // of the entries of each input, then of all
    std::vector<float> thresholds_;        // of the entries, sorted for each input
    std::vector<Entry> entries_;
    std::vector<std::size_t> first_rows_;  // of each input, then of all
    std::vector<float> row_thresholds_;    // of the last entry that a row applies
    std::vector<Mask> rows_;               // [rows, padded_]; row r of an input applies its first (r + 1) * step entries
};

// Masks with as many bits as the trees need: 16 or 64.
class TreeMasks {
public:
    static constexpr std::size_t max_leaves = LeafMasks<std::uint64_t>::max_leaves, max_trees = LeafMasks<std::uint16_t>::max_trees;

    // As in LeafMasks.
    bool open(std::span<const std::int32_t> roots, std::span<const TreeNode> nodes, std::span<const float> leaves, std::size_t inputs);
    bool is_open() const { return small_.is_open() || large_.is_open(); }
    float sum(const float* numbers) const { return small_.is_open() ? small_.sum(numbers) : large_.sum(numbers); }

private:
    LeafMasks<std::uint16_t> small_;
    LeafMasks<std::uint64_t> large_;
};

}  // namespace fm2
