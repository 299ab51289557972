// A batch of rows of a dataset: its validated ids in column order, and its distinct features.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fm2 {

class Minibatch {
public:
    explicit Minibatch(std::vector<std::int32_t> sizes);

    // Loads the rows order[0], order[1], ... of ids [rows, fields]; if `order` is null, the first `count` rows.
    // Throws std::out_of_range if a row does not exist or an id is not below its field's size; the batch is empty afterwards.
    template <class Index>
    void load(const std::int32_t* ids, std::size_t rows, const Index* order, std::size_t count, std::size_t threads);

    std::size_t size() const { return count_; }
    std::size_t fields() const { return sizes_.size(); }
    const std::vector<std::int32_t>& sizes() const { return sizes_; }
    const std::vector<std::size_t>& by_size() const { return by_size_; }  // the fields, largest first

    // The ids of a field for all rows, followed by `padding` more valid ids, so that loops can prefetch beyond the end.
    const std::int32_t* ids(std::size_t field) const { return ids_.data() + field * stride_; }
    std::size_t stride() const { return stride_; }  // distance between the ids of consecutive fields
    static constexpr std::size_t padding = 16;

    // Writes a field's distinct features in order of first appearance, and each row's index among them (its slot). Both arrays have
    // size() elements. Returns the number of distinct features. Not thread-safe for the same field.
    std::size_t find_distinct(std::size_t field, std::int32_t* features, std::int32_t* slots);

private:
    std::vector<std::int32_t> sizes_;
    std::vector<std::size_t> by_size_;
    std::vector<std::int64_t> first_;
    std::vector<std::int32_t> first_row_;  // for every feature of every field, the first row of the batch that contains it
    std::vector<std::int32_t> ids_;
    std::size_t count_ = 0, stride_ = 0;
};

}  // namespace fm2
