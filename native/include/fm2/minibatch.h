// A batch of rows, taken from wherever they lie in the data set: its ids by field, checked, and its distinct features.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fm2 {

class Minibatch {
public:
    explicit Minibatch(std::vector<std::int32_t> sizes);

    // Takes the rows order[0], order[1], ... of ids [rows, fields]; without an order, the first `count` rows.
    // Throws std::out_of_range, and is empty then, where a row is not there or an id is not below its field's size.
    template <class Index>
    void load(const std::int32_t* ids, std::size_t rows, const Index* order, std::size_t count, std::size_t threads);

    std::size_t size() const { return count_; }
    std::size_t fields() const { return sizes_.size(); }
    const std::vector<std::int32_t>& sizes() const { return sizes_; }
    const std::vector<std::size_t>& by_size() const { return by_size_; }  // the fields, largest first

    // The ids of a field, row after row; behind the last follow some more that are valid too, to prefetch by.
    const std::int32_t* ids(std::size_t field) const { return ids_.data() + field * stride_; }
    std::size_t stride() const { return stride_; }  // from a field's ids to the next field's
    static constexpr std::size_t padding = 16;

    // Writes a field's distinct features in the order in which they first appear, and which of them (slot) each row has;
    // both have room for size() entries. Returns how many there are. No two threads may ask for the same field at once.
    std::size_t find_distinct(std::size_t field, std::int32_t* features, std::int32_t* slots);

private:
    std::vector<std::int32_t> sizes_;
    std::vector<std::size_t> by_size_;
    std::vector<std::int64_t> first_;
    std::vector<std::int32_t> place_;  // for every feature of every field, the first row of the batch that has it
    std::vector<std::int32_t> ids_;
    std::size_t count_ = 0, stride_ = 0;
};

}  // namespace fm2
