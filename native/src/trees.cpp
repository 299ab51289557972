#include "fm2/trees.h"

#include <algorithm>
#include <cmath>

#include "fm2/expect.h"

namespace fm2 {
namespace {

using Words = std::span<const std::uint32_t>;
enum { n_inputs, n_pairs, n_trees, n_nodes, n_leaves, n_boundaries, n_counts };
constexpr std::size_t pair_words = 3;

// Takes values of a type from the front of the words.
template <class T>
std::span<const T> take(Words& words, std::size_t count) {
    constexpr std::size_t size = sizeof(T) / sizeof(std::uint32_t);
    expect(count <= words.size() / size, "the trees of a field are truncated");
    const std::span values(reinterpret_cast<const T*>(words.data()), count);
    words = words.subspan(count * size);
    return values;
}

struct Heading {
    Words counts, inputs, pairs;
};

Heading take_heading(Words& words) {
    const Words counts = take<std::uint32_t>(words, n_counts);
    expect(counts[n_inputs] <= Trees::max_inputs, "trees with ", counts[n_inputs], " inputs; at most ", Trees::max_inputs,
           " are supported");
    expect(counts[n_pairs] <= Trees::max_pairs, "trees with ", counts[n_pairs], " pairs; at most ", Trees::max_pairs, " are supported");
    const Words inputs = take<std::uint32_t>(words, 2 * std::size_t{counts[n_inputs]});
    return {counts, inputs, take<std::uint32_t>(words, pair_words * std::size_t{counts[n_pairs]})};
}

// Takes the combinations of all pairs; calls visit(pair, ids of its combinations) for each. The pairs have no tables yet. Returns the sizes
// of parts and pairs.
template <class Visit>
std::vector<std::size_t> visit_pairs(const Heading& heading, Words& words, std::span<const std::size_t> part_sizes, const Visit& visit) {
    std::vector<std::size_t> sizes(part_sizes.begin(), part_sizes.end());
    for (std::size_t i = 0; i < heading.counts[n_pairs]; ++i) {
        const Words described = heading.pairs.subspan(pair_words * i, pair_words);
        const std::size_t combinations = described[2];
        expect(described[0] < sizes.size() && described[1] < sizes.size(), "a pair of trees has a part that does not exist");
        Cross pair;
        pair.part_count = 2;
        pair.parts = {described[0], described[1], 0};
        const auto ids = take<std::int32_t>(words, 2 * combinations);
        expect(combinations < 1u << 31, "a pair of trees has too many combinations");
        pair.set_sizes(static_cast<std::int32_t>(combinations + 1), {sizes[described[0]], sizes[described[1]], 0});
        sizes.push_back(combinations + 1);
        visit(pair, ids);
    }
    return sizes;
}

}  // namespace

std::size_t Trees::count_slots(Words words) {
    const Heading heading = take_heading(words);
    std::size_t slots = 0;
    for (std::size_t i = 0; i < heading.counts[n_pairs]; ++i) slots += Cross::table_slots(heading.pairs[pair_words * i + 2]);
    return slots;
}

std::vector<std::uint64_t> Trees::make_slots(Words words, std::span<const std::size_t> part_sizes) {
    const Heading heading = take_heading(words);
    std::vector<std::uint64_t> slots;
    visit_pairs(heading, words, part_sizes, [&](const Cross& pair, std::span<const std::int32_t> ids) {
        std::vector<Combination> combinations(ids.size() / 2);
        for (std::size_t i = 0; i < combinations.size(); ++i) combinations[i] = {ids[2 * i], ids[2 * i + 1], 0};
        const std::vector<std::uint64_t> table = pair.make_table(combinations);
        slots.insert(slots.end(), table.begin(), table.end());
    });
    return slots;
}

void Trees::open(Words words, std::span<const std::uint64_t> slots, std::span<const std::size_t> part_sizes, std::size_t size) {
    const Heading heading = take_heading(words);
    expect(heading.counts[n_trees] > 0, "a tree field has no trees");
    pairs_.clear();
    const std::vector<std::size_t> sizes = visit_pairs(heading, words, part_sizes, [&](Cross pair, std::span<const std::int32_t> ids) {
        const std::size_t needed = Cross::table_slots(ids.size() / 2);
        expect(needed <= slots.size(), "the hash table of a pair of trees is truncated");
        pair.slots = slots.first(needed);
        slots = slots.subspan(needed);
        pairs_.push_back(pair);
    });
    expect(slots.empty(), "the hash tables of trees are too long");
    inputs_.clear();
    number_parts_.clear();
    list_inputs_.clear();
    for (std::size_t i = 0; i < heading.counts[n_inputs]; ++i) add_input(heading.inputs[2 * i], heading.inputs[2 * i + 1], sizes, words);
    roots_ = take<std::int32_t>(words, heading.counts[n_trees]);
    nodes_ = take<TreeNode>(words, heading.counts[n_nodes]);
    leaves_ = take<float>(words, heading.counts[n_leaves]);
    boundaries_ = take<float>(words, heading.counts[n_boundaries]);
    expect(words.empty(), "the trees of a field are too long");
    check_nodes();
    masks_.open(roots_, nodes_, leaves_, inputs_.size());
    const auto is_nan = [](float boundary) { return std::isnan(boundary); };
    expect(std::ranges::is_sorted(boundaries_) && std::ranges::none_of(boundaries_, is_nan), "the buckets of trees are not sorted");
    expect(boundaries_.size() + 2 == size, "trees with ", boundaries_.size() + 1, " buckets belong to a field with ", size, " features");
}

// `sizes` are those of parts and pairs.
void Trees::add_input(std::size_t part, std::uint32_t features, std::span<const std::size_t> sizes, Words& words) {
    const bool is_table = features != 0 && features < in_list;
    expect(part < (is_table ? sizes.size() : parts.size()), "an input of trees has a part that does not exist");
    const bool is_list = part < parts.size() && has_lists[part];
    if (is_table) {
        expect(features == sizes[part], "an input of trees and its field differ in size");
        inputs_.push_back({part, take<float>(words, features)});
    } else if (features) {
        const std::uint32_t id = features - in_list;
        expect(is_list, "trees look for a feature in the list of a field that has one value");
        expect(id < sizes[part], "trees look for a feature that does not exist");
        list_inputs(part).contained.push_back(inputs_.size());
        list_inputs(part).ids.push_back(id ? static_cast<std::int32_t>(id) : -1);  // which no list contains
        inputs_.push_back({part, {}, true});
    } else {
        if (is_list) list_inputs(part).lengths.push_back(inputs_.size());
        else number_parts_.push_back(part);
        inputs_.push_back({part, {}, is_list});
    }
}

Trees::ListInputs& Trees::list_inputs(std::size_t part) {
    const auto found = std::ranges::find(list_inputs_, part, &ListInputs::part);
    if (found != list_inputs_.end()) return *found;
    list_inputs_.push_back({part, {}, {}, {}});
    return list_inputs_.back();
}

void Trees::ListInputs::read(const List& list, float* values) const {
    for (const std::size_t input : lengths) values[input] = static_cast<float>(list.size);
    std::uint32_t found[max_inputs];
    std::fill_n(found, ids.size(), 0);
    for (const std::int32_t value : std::span(list.ids, list.size))
        for (std::size_t i = 0; i < ids.size(); ++i) found[i] |= ids[i] == value;  // without branches, for vector instructions
    for (std::size_t i = 0; i < ids.size(); ++i) values[contained[i]] = static_cast<float>(found[i]);
}

// A node leads to later nodes only, so that every walk ends.
void Trees::check_nodes() const {
    const auto check = [&](std::int32_t next, std::size_t after) {
        const auto index = static_cast<std::size_t>(next < 0 ? ~next : next);
        expect(next < 0 ? index < leaves_.size() : index >= after && index < nodes_.size(), "a tree has an invalid node");
    };
    for (const std::int32_t root : roots_) check(root, 0);
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
        expect(nodes_[n].input < inputs_.size(), "a tree reads an input that does not exist");
        for (const std::int32_t next : nodes_[n].next) check(next, n + 1);
    }
}

bool Trees::reads_lists(std::size_t part) const { return std::ranges::find(list_inputs_, part, &ListInputs::part) != list_inputs_.end(); }

bool Trees::reads_features(std::size_t part) const {
    const auto reads = [&](const Input& input) { return input.part == part && !input.numbers.empty(); };
    const auto combines = [&](const Cross& pair) { return pair.parts[0] == part || pair.parts[1] == part; };
    return std::ranges::any_of(inputs_, reads) || std::ranges::any_of(pairs_, combines);
}

// Returns the sum of the leaves that a row reaches.
float Trees::walk(const float* numbers) const {
    LeafSum sum;
    // Several trees at the same time, without branches: a step waits for memory, and its direction cannot be predicted.
    constexpr std::size_t lanes = LeafSum::lanes;
    for (std::size_t first = 0; first < roots_.size(); first += lanes) {
        const std::size_t count = std::min(lanes, roots_.size() - first);
        std::int32_t at[lanes];
        std::fill_n(std::copy_n(roots_.begin() + static_cast<std::ptrdiff_t>(first), count, at), lanes - count, ~0);
        while (std::ranges::any_of(at, [](std::int32_t next) { return next >= 0; }))
            for (std::int32_t& next : at) {
                const TreeNode& node = nodes_[static_cast<std::size_t>(std::max(next, 0))];
                const std::int32_t following = node.next[node.is_above(numbers[node.input])];
                next = next < 0 ? next : following;
            }
        for (std::size_t lane = 0; lane < count; ++lane) sum.add(first + lane, leaves_[static_cast<std::size_t>(~at[lane])]);
    }
    return sum.total();
}

void Trees::encode(std::int32_t* rows, std::size_t count, std::size_t fields, std::span<const float* const> numbers,
                   std::span<const Lists> lists) const {
    std::int32_t features[max_pairs];
    float values[max_inputs];
    for (std::size_t r = 0; r < count; ++r) {
        std::int32_t* row = rows + r * fields;
        const auto id_of = [&](std::size_t part) { return part < parts.size() ? row[parts[part]] : features[part - parts.size()]; };
        for (std::size_t i = 0; i < pairs_.size(); ++i)
            features[i] = pairs_[i].find({id_of(pairs_[i].parts[0]), id_of(pairs_[i].parts[1]), 0});
        for (const ListInputs& inputs : list_inputs_)
            inputs.read(lists[inputs.part].find(row[parts[inputs.part]]).value_or(List{}), values);
        for (std::size_t i = 0; i < inputs_.size(); ++i) {
            const auto& [part, table, reads_list] = inputs_[i];
            if (reads_list) continue;
            if (table.empty()) {
                values[i] = std::isnan(numbers[part][r]) ? missing : numbers[part][r];
            } else {
                const auto index = static_cast<std::size_t>(static_cast<std::uint32_t>(id_of(part)));
                values[i] = index < table.size() ? table[index] : missing;
            }
        }
        if (roots_.empty()) {
            row[field] = 0;
            continue;
        }
        const float sum = masks_.is_open() ? masks_.sum(values) : walk(values);
        row[field] = static_cast<std::int32_t>(1 + (std::ranges::upper_bound(boundaries_, sum) - boundaries_.begin()));
    }
}

}  // namespace fm2
