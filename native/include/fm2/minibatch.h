// A batch of rows of a dataset: its validated ids in column order, and its distinct features.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fm2/rows.h"

namespace fm2 {

// Features of fields with one value that are sometimes replaced by the unknown one.
struct HiddenFeatures {
    std::vector<std::vector<std::uint16_t>> probabilities;  // by field and feature, in units of 1 / 65,536; none if all are 0
    std::vector<std::vector<std::size_t>> parts;  // by field: of a cross, the fields that it combines; if one is unknown, so is the cross
};

// What a batch leaves out of its rows. Each value of a list is dropped with a probability; the weights of the others are divided by the
// probability of keeping them. Lists of the fields in `numbers` are the weighted features of one number, of which none is dropped. Features
// are hidden, which makes them unknown. A hash of seed, step, row of the batch, field and position in the list decides.
struct ValueDropout {
    float probability = 0;
    std::uint64_t seed = 0, step = 0;
    std::span<const std::size_t> numbers = {};
    std::span<const std::uint32_t> rows = {};  // the numbers of the batch's rows in a larger batch, if it is a part of one
    const HiddenFeatures* hidden = nullptr;

    float factor(std::size_t row, std::size_t field, std::size_t position) const;  // of the value's weight: 0 or 1 / (1 - probability)
    bool hides(std::size_t row, std::size_t field, std::uint16_t probability_of_feature) const;

private:
    std::uint32_t hash(std::size_t row, std::size_t field, std::size_t position) const;
};

// The lists of a multi-valued field in a batch. Row i has the values [offsets[i], offsets[i + 1]).
struct BatchLists {
    const std::int32_t* offsets;  // [size() + 1]
    const std::int32_t* ids;  // followed by `padding` more valid ids
    const float* weights;  // never null
};

// The distinct features of a batch, by the worker that stores them: worker w has the features with id % workers == w of every field.
struct Distributed {
    std::vector<std::int32_t> counts;  // [workers, groups] number of features
    std::vector<std::int32_t> features;  // their ids / workers: by worker, then by group
    std::vector<std::int32_t> ids;  // their ids in the compact batch
};

class Minibatch {
public:
    // A batch that is to be compacted after every load needs no memory for features that it does not contain.
    explicit Minibatch(std::vector<std::int32_t> sizes, bool compacts = false);

    // Loads the rows order[0], order[1], ...; if `order` is null, the first `count` rows.
    // Throws std::out_of_range if a row or a list does not exist, an id is not below its field's size, or a weight is not finite; the batch
    // is empty afterwards.
    template <class Index>
    void load(const Rows& rows, const Index* order, std::size_t count, std::size_t threads, const ValueDropout& dropout = {});

    // Replaces ids by numbers from 0 on, in order of first appearance; sizes() then are the numbers of distinct features, at least 1. Field
    // f has the features of field owner[f] <= f; a group consists of the fields with the same owner.
    Distributed compact(std::span<const std::size_t> owner, std::size_t workers, std::size_t threads);
    bool is_indexed() const { return full_sizes_.empty() || compacted_; }

    std::size_t size() const { return count_; }
    std::size_t fields() const { return sizes_.size(); }
    const std::vector<std::int32_t>& sizes() const { return sizes_; }
    const std::vector<std::size_t>& by_size() const { return by_size_; }  // the fields, largest first

    bool has_lists() const { return !list_fields_.empty(); }
    bool is_list(std::size_t field) const { return has_lists() && is_list_[field]; }
    const std::vector<std::size_t>& list_fields() const { return list_fields_; }
    BatchLists lists(std::size_t field) const {
        const Values& values = values_[field];
        return {values.offsets.data(), values.ids.data(), values.weights.data()};
    }
    // The number of values of a field in all rows: size() unless it is multi-valued.
    std::size_t count_values(std::size_t field) const {
        return is_list(field) ? static_cast<std::size_t>(values_[field].offsets[count_]) : count_;
    }

    // The ids of all values of a field: [count_values(field)].
    const std::int32_t* value_ids(std::size_t field) const { return is_list(field) ? values_[field].ids.data() : ids(field); }

    // The ids of a field for all rows, followed by `padding` more valid ids, so that loops can prefetch beyond the end. All are 0 for
    // multi-valued fields.
    const std::int32_t* ids(std::size_t field) const { return ids_.data() + field * stride_; }
    std::size_t stride() const { return stride_; }  // distance between the ids of consecutive fields
    static constexpr std::size_t padding = 16;

    // Writes the distinct features of a field in order of first appearance, and each value's index among them (its slot). Several fields
    // must have the same features; their values follow each other. Both arrays have count_values(field) elements for every field. Returns
    // the number of distinct features. Not thread-safe for the same field.
    std::size_t find_distinct(std::span<const std::size_t> fields, std::int32_t* features, std::int32_t* slots);

private:
    // The values of a multi-valued field. They grow to the largest batch and are reused.
    struct Values {
        std::vector<std::int64_t> begins;  // where each row's list begins in the dataset
        std::vector<std::int32_t> offsets, ids;
        std::vector<float> weights;
    };

    void index();
    void choose_lists(const Rows& rows, std::size_t count);
    void find_lists(const Rows& rows, std::size_t begin, std::size_t end);
    void add_offsets(std::size_t count);
    void copy_lists(const Rows& rows, std::size_t begin, std::size_t end, const ValueDropout& dropout);
    void check_hidden(const HiddenFeatures& hidden) const;
    void hide(std::size_t begin, std::size_t end, const ValueDropout& dropout);

    std::vector<std::int32_t> sizes_, full_sizes_;  // the latter only if the batch is to be compacted
    std::vector<std::size_t> by_size_;
    std::vector<std::int64_t> first_;
    std::vector<std::int32_t> first_row_;  // for every feature of every field, the first row (or value) of the batch that contains it
    std::vector<std::size_t> list_fields_;
    std::vector<std::uint8_t> is_list_;
    std::vector<Values> values_;
    std::vector<std::int32_t> ids_;
    std::size_t count_ = 0, stride_ = 0;
    bool compacted_ = false;
    std::vector<std::uint8_t> is_alone_;  // whether a field of a compact batch is a group of its own
};

}  // namespace fm2
