#include "fm2/combination_counter.h"

#include <algorithm>
#include <utility>

namespace fm2 {
namespace {

constexpr std::size_t smallest_table = 1024;

}  // namespace

CombinationCounter::CombinationCounter(std::vector<std::size_t> columns, std::size_t most)
    : columns_(std::move(columns)), most_(std::max<std::size_t>(most, 1)), entries_(smallest_table) {}

template <class Count>
void CombinationCounter::add(const std::int32_t* ids, std::size_t fields, std::span<const Count> counted) {
    for (std::size_t r = 0; r < counted.size(); ++r) {
        Combination parts{};
        bool known = counted[r] > 0;
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            parts[i] = ids[r * fields + columns_[i]];
            known = known && parts[i] > 0;
        }
        if (known) add(parts, counted[r]);
    }
}

template void CombinationCounter::add(const std::int32_t*, std::size_t, std::span<const std::uint8_t>);
template void CombinationCounter::add(const std::int32_t*, std::size_t, std::span<const std::uint32_t>);

void CombinationCounter::add(const Combination& parts, std::int64_t count) {
    const std::uint64_t hash = hash_combination(parts);
    if (hash < first_ || hash > last_) return;
    const std::size_t mask = entries_.size() - 1;
    std::size_t i = hash & mask;
    while (entries_[i].count && entries_[i].parts != parts) i = (i + 1) & mask;
    const bool added = !entries_[i].count;
    entries_[i].parts = parts;
    entries_[i].count += count;
    if (!added) return;
    ++size_;
    while (size_ > most_ && first_ < last_) narrow();
    if (size_ * 3 > entries_.size() * 2) rebuild(entries_.size() * 2);
}

// Leaves the larger half of the hashes to the next pass.
void CombinationCounter::narrow() {
    last_ = first_ + (last_ - first_) / 2;
    rebuild(entries_.size());
}

void CombinationCounter::rebuild(std::size_t capacity) {
    std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(capacity));
    const std::size_t mask = capacity - 1;
    size_ = 0;
    for (const Entry& entry : old) {
        const std::uint64_t hash = hash_combination(entry.parts);
        if (!entry.count || hash > last_) continue;
        std::size_t i = hash & mask;
        while (entries_[i].count) i = (i + 1) & mask;
        entries_[i] = entry;
        ++size_;
    }
}

std::vector<CombinationCounter::Entry> CombinationCounter::take() {
    std::vector<Entry> taken = std::exchange(entries_, std::vector<Entry>(smallest_table));
    size_ = 0;
    std::erase_if(taken, [](const Entry& entry) { return entry.count == 0; });
    std::ranges::sort(taken, {}, &Entry::parts);
    return taken;
}

bool CombinationCounter::next() {
    if (last_ == last_hash) return false;
    first_ = last_ + 1;
    last_ = last_hash;
    return true;
}

}  // namespace fm2
