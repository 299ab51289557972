#include "fm2/list_table.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace fm2 {

void ListTable::number(const Lists& lists, std::span<const std::int32_t> ids_of, std::int32_t* numbers, std::int32_t* unknown) {
    added_.clear();
    std::vector<std::int32_t> ids;
    std::vector<float> weights;
    std::vector<char> key;
    for (std::size_t i = 0; i + 1 < lists.offsets.size(); ++i) {
        const List list = lists[static_cast<std::int32_t>(i)];
        ids.resize(list.size);
        weights.resize(list.size);
        for (std::size_t value = 0; value < list.size; ++value) {
            const auto code = static_cast<std::size_t>(list.ids[value]);  // huge if negative
            if (code >= ids_of.size()) throw std::out_of_range("a list has the code " + std::to_string(list.ids[value]));
            ids[value] = ids_of[code];
            weights[value] = list.weight(value);
        }
        key.resize(list.size * 8);
        std::copy_n(reinterpret_cast<const char*>(ids.data()), list.size * 4, key.begin());
        std::copy_n(reinterpret_cast<const char*>(weights.data()), list.size * 4, key.begin() + static_cast<std::ptrdiff_t>(list.size * 4));
        numbers[i] = add({ids.data(), weights.data(), list.size}, key.data(), key.size());
        unknown[i] = static_cast<std::int32_t>(std::ranges::count(ids, 0));
    }
}

std::int32_t ListTable::add(const List& list, const char* key, std::size_t size) {
    const std::string_view text(key, size);
    const bool full = index_.size() >= most_lists_ || bytes_ + size > most_bytes_;
    const std::size_t remembered = index_.size();
    const std::int32_t found = full ? index_.find(text) : index_.add(text);
    if (found != StringIndex::absent && static_cast<std::size_t>(found) < remembered) return numbers_[static_cast<std::size_t>(found)];
    if (count_ == std::numeric_limits<std::int32_t>::max() - 1) throw std::length_error("a field has more than 2^31 lists");
    if (!full) {
        numbers_.push_back(count_);
        bytes_ += size;
    }
    for (std::size_t value = 0; value < list.size; ++value) added_.add(list.ids[value], list.weights[value]);
    added_.finish();
    return count_++;
}

}  // namespace fm2
