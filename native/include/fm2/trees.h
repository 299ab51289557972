// Tree fields: the feature of a row is the bucket of the sum of gradient-boosted trees, which read other fields, the parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fm2/cross.h"
#include "fm2/rows.h"
#include "fm2/tree_masks.h"

namespace fm2 {

// How the id of a tree field follows from its parts. The memory is stored elsewhere, for example in a mapped model file; open() checks it,
// so that every row has an id between 1 and size - 1.
//
// A tree compares inputs with thresholds. An input is the number in the column of a part, or a number that a feature of a part has, or a
// pair of features of two parts, or of a part and an earlier pair: for example, how often the training rows have it. Of a part with lists,
// inputs are the length of the list, and whether it contains a feature. The words of the trees:
//
//   counts        inputs, pairs, trees, nodes, leaves, boundaries
//   inputs        for each: its part, or the number of parts + its pair; the number of features, or 0 for the number in the column or the
//                 length of the list, or in_list + id for whether the list contains a feature (never if the id is 0)
//   pairs         for each: two parts, or the number of parts + an earlier pair; the number of combinations
//   combinations  of the first pair, of the second, and so on: the ids of both parts; combination i is feature i + 1, others are feature 0
//   numbers       of the features of the first input, of the second, and so on: floats
//   roots         of the trees: a node, or ~leaf if the tree has no node
//   nodes         input; threshold, a float; what follows if the number is at most the threshold, and otherwise: a later node, or ~leaf
//   leaves        floats
//   boundaries    of the buckets: sorted floats
class Trees {
public:
    std::size_t field = 0;  // the column of its ids
    std::vector<std::size_t> parts;
    std::vector<bool> has_lists;  // by part

    // `slots` are the hash tables of the pairs, as make_slots returns them. Throws std::invalid_argument if the words are not as described,
    // if an input does not match its part, or if there are not size - 1 buckets.
    void open(std::span<const std::uint32_t> words, std::span<const std::uint64_t> slots, std::span<const std::size_t> part_sizes,
              std::size_t size);
    // Returns the hash tables of the pairs, one after the other.
    static std::vector<std::uint64_t> make_slots(std::span<const std::uint32_t> words, std::span<const std::size_t> part_sizes);
    static std::size_t count_slots(std::span<const std::uint32_t> words);  // of these tables

    // Writes the ids of the field into rows [count, fields] that have the ids of its parts. numbers[part] are those in
    // the column of a part, by row; only those of the parts in number_parts() are read. NaN is missing. lists[part] has the lists whose
    // numbers are the ids of a part; only those of parts for which reads_lists() holds are read. Without trees, the ids are 0.
    void encode(std::int32_t* rows, std::size_t count, std::size_t fields, std::span<const float* const> numbers,
                std::span<const Lists> lists) const;
    std::span<const std::size_t> number_parts() const { return number_parts_; }
    bool reads_lists(std::size_t part) const;
    bool reads_features(std::size_t part) const;

    static constexpr std::size_t max_inputs = 1024, max_pairs = 64;
    static constexpr std::uint32_t in_list = 1u << 31;
    static constexpr float missing = -1e30f;  // the input if there is no number

private:
    struct Input {
        std::size_t part;
        std::span<const float> numbers;  // by id; none if the input is the number in the column, or reads a list
        bool reads_list = false;
    };
    // The inputs that read the list of a part.
    struct ListInputs {
        std::size_t part;
        std::vector<std::size_t> lengths;
        std::vector<std::size_t> contained;  // inputs
        std::vector<std::int32_t> ids;  // that these look for

        void read(const List& list, float* values) const;
    };
    void add_input(std::size_t part, std::uint32_t features, std::span<const std::size_t> sizes, std::span<const std::uint32_t>& words);
    ListInputs& list_inputs(std::size_t part);
    float walk(const float* numbers) const;
    void check_nodes() const;

    std::vector<Input> inputs_;
    std::vector<Cross> pairs_;
    std::vector<std::size_t> number_parts_;
    std::vector<ListInputs> list_inputs_;  // by part that has some
    std::span<const std::int32_t> roots_;
    std::span<const TreeNode> nodes_;
    std::span<const float> leaves_, boundaries_;
    TreeMasks masks_;  // if the trees are small enough
};

}  // namespace fm2
