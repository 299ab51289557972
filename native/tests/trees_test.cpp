#include "fm2/trees.h"

#include <bit>
#include <cmath>
#include <initializer_list>
#include <stdexcept>

#include "check.h"

namespace {

using Words = std::vector<std::uint32_t>;

void add_floats(Words& words, std::initializer_list<float> numbers) {
    for (const float number : numbers) words.push_back(std::bit_cast<std::uint32_t>(number));
}

const std::vector<std::size_t> part_sizes{3, 2};

// Inputs: the features of a part, its pairs with those of another part, of which one combination is known, and the numbers of that other
// part. One tree has three nodes, and one is a leaf. Three buckets.
Words example() {
    Words words{3, 1, 2, 3, 5, 2, /* inputs */ 0, 3, 2, 2, 1, 0, /* pairs */ 0, 1, 1, /* combinations */ 2, 1};
    add_floats(words, {-1, 5, 9, 0, 1});
    for (const std::int32_t root : {0, ~3}) words.push_back(static_cast<std::uint32_t>(root));
    const auto add_node = [&](std::uint32_t input, float threshold, std::int32_t low, std::int32_t high) {
        words.push_back(input);
        add_floats(words, {threshold});
        words.push_back(static_cast<std::uint32_t>(low));
        words.push_back(static_cast<std::uint32_t>(high));
    };
    add_node(0, 5, 2, 1);
    add_node(1, 0.5f, ~1, ~2);
    add_node(2, 7, ~0, ~4);
    add_floats(words, {-2, 0.25f, 3, 1, 8});  // leaves
    add_floats(words, {0, 4});                // boundaries
    return words;
}

bool opens(const Words& words, std::size_t size = 4) {
    fm2::Trees trees;
    trees.parts = {0, 1};
    trees.has_lists = {false, false};
    try {
        const std::vector<std::uint64_t> slots = fm2::Trees::make_slots(words, part_sizes);
        CHECK(slots.size() == fm2::Trees::count_slots(words));
        trees.open(words, slots, part_sizes, size);
        return true;
    } catch (const std::invalid_argument&) {
        return false;
    }
}

}  // namespace

TEST(trees_add_the_leaves_that_a_row_reaches) {
    const Words words = example();
    fm2::Trees trees;
    trees.parts = {1, 2};
    trees.has_lists = {false, false};
    trees.field = 0;
    std::vector<std::int32_t> rows{7, 0, 0, 7, 1, 1, 7, 2, 0, 7, 2, 1, 7, -5, 99, 7, 1, 0};
    const float numbers[]{7, NAN, 0, 0, -1, 7.5f};
    const float* const of_parts[]{nullptr, numbers};
    trees.encode(rows.data(), 1, 3, of_parts, {});
    CHECK(rows[0] == 0);  // no trees yet
    const std::vector<std::uint64_t> slots = fm2::Trees::make_slots(words, part_sizes);
    trees.open(words, slots, part_sizes, 4);
    CHECK(trees.number_parts().size() == 1 && trees.number_parts()[0] == 1);
    CHECK(trees.reads_features(0) && trees.reads_features(1));
    trees.encode(rows.data(), 6, 3, of_parts, {});
    // -2 + 1; -2 + 1, because 5 is at most 5, and missing numbers are small; 0.25 + 1; 3 + 1, and a boundary belongs to the bucket above
    // it; ids that do not exist are missing; 8 + 1
    const std::int32_t expected[]{1, 1, 2, 3, 1, 3};
    for (std::size_t r = 0; r < 6; ++r) CHECK(rows[3 * r] == expected[r]);
}

// A pair may combine an earlier one: the only known combination of the first pair, 2 and 1, with the feature 1 of the second part.
TEST(pairs_combine_earlier_pairs) {
    Words words{1, 2, 1, 1, 2, 1, /* input */ 3, 2, /* pairs */ 0, 1, 1, 2, 1, 1, /* combinations */ 2, 1, 1, 1};
    add_floats(words, {0, 1});
    for (const std::int32_t word : {/* root */ 0, /* node */ 0}) words.push_back(static_cast<std::uint32_t>(word));
    add_floats(words, {0.5f});
    for (const std::int32_t next : {~0, ~1}) words.push_back(static_cast<std::uint32_t>(next));
    add_floats(words, {-1, 1, /* boundary */ 0});
    fm2::Trees trees;
    trees.field = 0;
    trees.parts = {1, 2};
    trees.has_lists = {false, false};
    const std::vector<std::uint64_t> slots = fm2::Trees::make_slots(words, part_sizes);
    trees.open(words, slots, part_sizes, 3);
    CHECK(trees.reads_features(0) && trees.reads_features(1));
    std::vector<std::int32_t> rows{0, 2, 1, 0, 1, 1, 0, 2, 0};
    trees.encode(rows.data(), 3, 3, {}, {});
    CHECK(rows[0] == 2 && rows[3] == 1 && rows[6] == 1);
    for (const std::uint32_t part : {3u, 1000u}) {  // itself, and one that does not exist
        Words damaged = words;
        damaged[11] = part;
        CHECK(!opens(damaged, 3));
    }
}

TEST(damaged_trees_are_rejected) {
    const Words words = example();
    CHECK(opens(words));
    CHECK(!opens(words, 5));  // another number of features than buckets
    for (std::size_t length = 0; length < words.size(); ++length)
        CHECK(!opens(Words(words.begin(), words.begin() + static_cast<long>(length))));
    Words longer = words;
    longer.push_back(0);
    CHECK(!opens(longer));
    // counts, parts, sizes, roots, and the inputs and children of nodes
    for (const std::size_t at : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 22, 23, 24, 26, 27, 28, 30, 31, 32, 34, 35}) {
        Words damaged = words;
        damaged[at] = 1000;
        CHECK(!opens(damaged));
    }
    Words cycle = words;
    cycle[30] = 0;  // the second node leads to the first one
    CHECK(!opens(cycle));
    Words unsorted = words;
    std::swap(unsorted[words.size() - 1], unsorted[words.size() - 2]);
    CHECK(!opens(unsorted));
}

namespace {

// One tree reads the list of the only part, which has four features: whether it is longer than 1, and whether it contains the feature.
Words list_example(std::uint32_t feature) {
    Words words{2, 0, 1, 2, 3, 2, /* inputs */ 0, 0, 0, feature, /* root */ 0, /* nodes */ 1};
    add_floats(words, {0.5f});
    for (const std::int32_t next : {1, ~2}) words.push_back(static_cast<std::uint32_t>(next));
    words.push_back(0);
    add_floats(words, {1});
    for (const std::int32_t next : {~0, ~1}) words.push_back(static_cast<std::uint32_t>(next));
    add_floats(words, {0, 1, 2, /* boundaries */ 0.5f, 1.5f});
    return words;
}

fm2::Trees open_lists(const Words& words, bool has_lists = true) {
    fm2::Trees trees;
    trees.field = 1;
    trees.parts = {0};
    trees.has_lists = {has_lists};
    const std::vector<std::size_t> sizes{4};
    trees.open(words, {}, sizes, 4);
    return trees;
}

}  // namespace

TEST(trees_read_lists) {
    const Words words = list_example(fm2::Trees::in_list + 3), vanished = list_example(fm2::Trees::in_list);
    fm2::ListBuffer buffer;
    for (const std::vector<std::int32_t>& list : std::vector<std::vector<std::int32_t>>{{}, {1}, {1, 0}, {3}, {0, 2, 3, 3}}) {
        for (const std::int32_t id : list) buffer.add(id, 0.5f);
        buffer.finish();
    }
    const float* const numbers[]{nullptr};
    const fm2::Lists lists[]{buffer.view()};
    std::vector<std::int32_t> rows{0, 9, 1, 9, 2, 9, 3, 9, 4, 9, 5, 9, -1, 9};  // the last lists do not exist, and are empty
    const fm2::Trees trees = open_lists(words);
    CHECK(trees.reads_lists(0) && trees.number_parts().empty() && !trees.reads_features(0));
    trees.encode(rows.data(), 7, 2, numbers, lists);
    const std::int32_t expected[]{1, 1, 2, 3, 3, 1, 1};
    for (std::size_t r = 0; r < 7; ++r) CHECK(rows[2 * r + 1] == expected[r]);
    open_lists(vanished).encode(rows.data(), 7, 2, numbers, lists);  // no list contains a feature that has no id
    const std::int32_t by_length[]{1, 1, 2, 1, 2, 1, 1};
    for (std::size_t r = 0; r < 7; ++r) CHECK(rows[2 * r + 1] == by_length[r]);
}

TEST(damaged_inputs_of_lists_are_rejected) {
    const auto opens_lists = [](const Words& words, bool has_lists = true) {
        try {
            open_lists(words, has_lists);
            return true;
        } catch (const std::invalid_argument&) {
            return false;
        }
    };
    const Words words = list_example(fm2::Trees::in_list + 3);
    CHECK(opens_lists(words));
    CHECK(!opens_lists(words, false));  // the part has one value
    CHECK(!opens_lists(list_example(fm2::Trees::in_list + 4)));
    CHECK(!opens_lists(list_example(~0u)));
    Words other_part = words;
    other_part[8] = 1;
    CHECK(!opens_lists(other_part));
    for (std::size_t length = 0; length < words.size(); ++length)
        CHECK(!opens_lists(Words(words.begin(), words.begin() + static_cast<long>(length))));
}
