#include "fm2/tree_masks.h"

#include <cmath>
#include <limits>
#include <random>

#include "check.h"

namespace {

constexpr std::size_t inputs = 5;

struct Forest {
    std::vector<std::int32_t> roots;
    std::vector<fm2::TreeNode> nodes;
    std::vector<float> leaves;

    // The sum by definition: tree t belongs to the partial sum t % 8.
    float walk(const float* numbers) const {
        float sums[8] = {}, total = 0;
        for (std::size_t tree = 0; tree < roots.size(); ++tree) {
            std::int32_t at = roots[tree];
            while (at >= 0) {
                const fm2::TreeNode& node = nodes[static_cast<std::size_t>(at)];
                at = numbers[node.input] <= node.threshold ? node.next[0] : node.next[1];
            }
            sums[tree % 8] += leaves[static_cast<std::size_t>(~at)];
        }
        for (const float sum : sums) total += sum;
        return total;
    }
};

// Adds a tree with so many leaves, whose root comes before its children; returns what leads to it.
std::int32_t grow(Forest& forest, std::size_t leaves, std::mt19937& random) {
    if (leaves == 1) {
        forest.leaves.push_back(std::uniform_real_distribution<float>(-1, 1)(random));
        return ~static_cast<std::int32_t>(forest.leaves.size() - 1);
    }
    const std::size_t at = forest.nodes.size(), left = 1 + random() % (leaves - 1);
    // Few thresholds, so that many nodes have the same one, and rows have numbers that are equal to a threshold.
    forest.nodes.push_back({static_cast<std::uint32_t>(random() % inputs), static_cast<float>(random() % 20), {0, 0}});
    forest.nodes[at].next[0] = grow(forest, left, random);
    forest.nodes[at].next[1] = grow(forest, leaves - left, random);
    return static_cast<std::int32_t>(at);
}

Forest make_forest(std::size_t trees, std::size_t most_leaves, std::mt19937& random) {
    Forest forest;
    for (std::size_t tree = 0; tree < trees; ++tree) forest.roots.push_back(grow(forest, 1 + random() % most_leaves, random));
    return forest;
}

bool opens(const Forest& forest, fm2::TreeMasks& masks) { return masks.open(forest.roots, forest.nodes, forest.leaves, inputs); }

}  // namespace

TEST(masks_find_the_leaves_that_a_walk_finds) {
    std::mt19937 random(1);
    for (const auto& [trees, leaves] : {std::pair{1, 16},
                                        {7, 16},
                                        {31, 16},
                                        {32, 16},
                                        {33, 16},
                                        {700, 16},  //
                                        {1, 64},
                                        {7, 64},
                                        {8, 64},
                                        {9, 64},
                                        {33, 64},
                                        {700, 64},
                                        {3, 17}}) {
        Forest forest = make_forest(static_cast<std::size_t>(trees), static_cast<std::size_t>(leaves), random);
        forest.roots.back() = grow(forest, static_cast<std::size_t>(leaves), random);  // one with all leaves
        fm2::TreeMasks masks;
        CHECK(!masks.is_open());
        CHECK(opens(forest, masks));
        CHECK(masks.is_open());
        for (int row = 0; row < 200; ++row) {
            float numbers[inputs];
            for (float& number : numbers) number = static_cast<float>(random() % 44) / 2 - 1;
            if (row % 5 == 1) numbers[row % inputs] = std::numeric_limits<float>::quiet_NaN();
            if (row % 5 == 2) numbers[row % inputs] = -std::numeric_limits<float>::infinity();
            if (row % 5 == 3) numbers[row % inputs] = std::numeric_limits<float>::infinity();
            CHECK(masks.sum(numbers) == forest.walk(numbers));
        }
    }
}

TEST(masks_leave_large_trees_to_a_walk) {
    std::mt19937 random(2);
    Forest forest = make_forest(3, 16, random);
    forest.roots.push_back(grow(forest, 65, random));
    fm2::TreeMasks masks;
    CHECK(!opens(forest, masks));
    CHECK(!masks.is_open());
    forest = make_forest(fm2::TreeMasks::max_trees, 2, random);
    CHECK(opens(forest, masks));
    forest.roots.push_back(~0);
    CHECK(!opens(forest, masks));
    forest = make_forest(2, 16, random);
    forest.nodes.push_back({0, std::numeric_limits<float>::quiet_NaN(), {~0, ~0}});
    CHECK(!opens(forest, masks));
}

// A chain of nodes that both lead to the next one has 2^60000 paths.
TEST(masks_do_not_follow_every_path_through_shared_nodes) {
    Forest forest;
    forest.roots = {0};
    for (std::int32_t at = 0; at < 60'000; ++at) forest.nodes.push_back({0, 1, {at + 1, at + 1}});
    forest.nodes.push_back({0, 1, {~0, ~0}});
    forest.leaves = {1};
    fm2::TreeMasks masks;
    CHECK(!opens(forest, masks));
}
