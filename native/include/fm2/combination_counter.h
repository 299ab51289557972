// Counts the combinations of ids that occur in rows, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "fm2/cross.h"

namespace fm2 {

// If more than `most` combinations occur, a pass over the rows counts only those with the smaller hashes, and the others are left to
// further passes. The counts are always exact.
class CombinationCounter {
public:
    struct Entry {
        Combination parts;
        std::int64_t count;  // 0: the entry is free
    };

    CombinationCounter(std::vector<std::size_t> columns, std::size_t most);

    // Adds counted[row] to the counts of the rows' combinations. Those with an unknown part are not counted. ids is [row][field].
    template <class Count>
    void add(const std::int32_t* ids, std::size_t fields, std::span<const Count> counted);

    // Returns what this pass has counted, ordered by the ids of the parts.
    std::vector<Entry> take();
    // Starts the next pass. Returns false if all combinations have been counted.
    bool next();

    std::span<const std::size_t> columns() const { return columns_; }

private:
    void add(const Combination& parts, std::int64_t count);
    void narrow();
    void rebuild(std::size_t capacity);

    static constexpr std::uint64_t last_hash = std::numeric_limits<std::uint64_t>::max();

    std::vector<std::size_t> columns_;
    std::size_t most_, size_ = 0;
    std::uint64_t first_ = 0, last_ = last_hash;  // the hashes that this pass counts
    std::vector<Entry> entries_;
};

}  // namespace fm2
