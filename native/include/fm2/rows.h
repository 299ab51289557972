// Encoded rows: an id per field, and lists of weighted ids for multi-valued fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace fm2 {

// The values of one list. Pooling is part of the weights: a multi-valued field contributes the weighted sum of its features' rows.
struct List {
    const std::int32_t* ids;
    const float* weights;  // null: all 1
    std::size_t size;

    float weight(std::size_t i) const { return weights ? weights[i] : 1.0f; }
};

// The lists of a field. List b has the values [offsets[b], offsets[b + 1]). Someone else owns the arrays, and they are not trusted.
struct Lists {
    std::span<const std::int64_t> offsets;  // one more than lists; empty if the field is not multi-valued
    std::span<const std::int32_t> ids;
    const float* weights = nullptr;  // as many as ids; null: all 1

    explicit operator bool() const { return !offsets.empty(); }

    // Returns a list; nothing if it does not exist or its values are not within `ids`. The ids in it are not checked. Each offset is read
    // once, because another thread may change it.
    std::optional<List> find(std::int32_t number) const {
        const auto index = static_cast<std::size_t>(number);
        if (number < 0 || index + 1 >= offsets.size()) return std::nullopt;
        const volatile std::int64_t* const bounds = offsets.data() + index;
        const std::int64_t begin = bounds[0], end = bounds[1];
        if (begin < 0 || begin > end || static_cast<std::size_t>(end) > ids.size()) return std::nullopt;
        return List{ids.data() + begin, weights ? weights + begin : nullptr, static_cast<std::size_t>(end - begin)};
    }
    // Returns a list that exists.
    List at(std::int32_t number) const {
        const std::int64_t begin = offsets[static_cast<std::size_t>(number)], end = offsets[static_cast<std::size_t>(number) + 1];
        return {ids.data() + begin, weights ? weights + begin : nullptr, static_cast<std::size_t>(end - begin)};
    }
    // The same, but throws std::out_of_range if there is no such list.
    List operator[](std::int32_t number) const {
        if (const std::optional<List> list = find(number)) return *list;
        if (number < 0 || static_cast<std::size_t>(number) + 1 >= offsets.size())
            throw std::out_of_range("there is no list " + std::to_string(number));
        throw std::out_of_range("the offsets of list " + std::to_string(number) + " are out of range");
    }
};

// Rows of ids [count, fields]. The id of a multi-valued field is the number of a list.
struct Rows {
    const std::int32_t* ids = nullptr;
    std::size_t count = 0, fields = 0;
    std::span<const Lists> lists;  // one per field, or none at all if no field is multi-valued

    bool is_list(std::size_t field) const { return !lists.empty() && lists[field]; }
    const std::int32_t* row(std::size_t index) const { return ids + index * fields; }
};

// Lists that grow. Clearing keeps the memory.
struct ListBuffer {
    std::vector<std::int64_t> offsets{0};
    std::vector<std::int32_t> ids;
    std::vector<float> weights;

    void clear() {
        offsets.resize(1);
        ids.clear();
        weights.clear();
    }
    void add(std::int32_t id, float weight) {
        ids.push_back(id);
        weights.push_back(weight);
    }
    // Completes the list of all values since the last call and returns its number.
    std::int32_t finish() {
        offsets.push_back(static_cast<std::int64_t>(ids.size()));
        return static_cast<std::int32_t>(offsets.size()) - 2;
    }
    Lists view() const { return {offsets, ids, weights.data()}; }
};

}  // namespace fm2
