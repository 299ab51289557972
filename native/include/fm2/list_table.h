// Numbers the lists of a field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fm2/rows.h"
#include "fm2/string_index.h"

namespace fm2 {

// Equal lists get the same number, as long as the table remembers them: it keeps the first lists and its memory is bounded.
class ListTable {
public:
    explicit ListTable(std::size_t most_lists, std::size_t most_bytes = std::size_t{1} << 26)
        : most_lists_(most_lists), most_bytes_(most_bytes) {}

    // Replaces codes with ids_of[code] and writes the number of each list. Also writes how many of its ids are unknown, that is, 0.
    void number(const Lists& lists, std::span<const std::int32_t> ids_of, std::int32_t* numbers, std::int32_t* unknown);
    const ListBuffer& added() const { return added_; }  // the new lists of the last call

private:
    std::int32_t add(const List& list, const char* key, std::size_t size);

    std::size_t most_lists_, most_bytes_, bytes_ = 0;
    StringIndex index_;                  // of the bytes of a list: its ids, then its weights
    std::vector<std::int32_t> numbers_;  // of the lists in the index
    std::int32_t count_ = 0;
    ListBuffer added_;
};

}  // namespace fm2
