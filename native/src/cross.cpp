#include "fm2/cross.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace fm2 {
namespace {

constexpr std::string_view times = "\u00d7";
constexpr std::string_view separator = " \u00d7 ";
constexpr std::size_t prefetched_rows = 8;

// The slot of a combination or the free slot for it; null if the table is full.
const CrossSlot* locate(std::span<const CrossSlot> slots, const Combination& ids) {
    const std::size_t mask = slots.size() - 1;
    for (std::size_t i = hash_combination(ids) & mask, seen = 0; seen < slots.size(); i = (i + 1) & mask, ++seen)
        if (slots[i].id == 0 || slots[i].parts == ids) return &slots[i];
    return nullptr;
}

}  // namespace

std::int32_t Cross::find(const Combination& ids) const {
    for (std::size_t i = 0; i < part_count; ++i)
        if (ids[i] <= 0) return 0;
    if (hash_bits) return hashed(ids);
    const CrossSlot* slot = locate(slots, ids);
    return slot && slot->id > 0 && slot->id < size ? slot->id : 0;
}

std::int32_t Cross::hashed(const Combination& ids) const {
    std::uint64_t state = 0;
    for (std::size_t i = 0; i < part_count; ++i) {
        const auto id = static_cast<std::size_t>(ids[i]);
        if (!hashes[i].empty() && id >= hashes[i].size()) return 0;
        state = mix(state ^ (hashes[i].empty() ? hash_packed(id, 0) : hashes[i][id]), 0xa0761d6478bd642fu + 2 * i);
    }
    return static_cast<std::int32_t>(1 + (state >> (64 - hash_bits)));
}

void Cross::encode(std::int32_t* rows, std::size_t count, std::size_t fields) const {
    for (std::size_t r = 0; r < count; ++r) {
        if (r + prefetched_rows < count && !slots.empty())
            __builtin_prefetch(&slots[hash_combination(combination(rows + (r + prefetched_rows) * fields)) & (slots.size() - 1)]);
        std::int32_t* row = rows + r * fields;
        row[field] = find(combination(row));
    }
}

std::vector<CrossSlot> make_cross_table(std::span<const Combination> combinations, std::size_t parts) {
    std::vector<CrossSlot> slots(std::bit_ceil(std::max<std::size_t>(combinations.size() * 3 / 2 + 1, 2)), CrossSlot{{}, 0});
    for (std::size_t i = 0; i < combinations.size(); ++i) {
        if (std::any_of(combinations[i].begin(), combinations[i].begin() + static_cast<std::ptrdiff_t>(parts),
                        [](std::int32_t id) { return id <= 0; }))
            continue;
        CrossSlot& slot = const_cast<CrossSlot&>(*locate(slots, combinations[i]));  // never null: a third of the slots are free
        if (slot.id) throw std::invalid_argument("a vocabulary contains a combination twice");
        slot = {combinations[i], static_cast<std::int32_t>(i + 1)};
    }
    return slots;
}

std::vector<std::uint64_t> feature_hashes(std::string_view bytes, std::span<const std::uint64_t> ends) {
    std::vector<std::uint64_t> hashes{0};
    std::uint64_t begin = 0;
    for (const std::uint64_t end : ends) {
        if (end < begin || end > bytes.size()) throw std::invalid_argument("the ends of a vocabulary do not match its bytes");
        hashes.push_back(hash_bytes(bytes.substr(begin, end - begin)));
        begin = end;
    }
    return hashes;
}

void append_part(std::string_view value, bool first, std::string& text) {
    if (!first) text += separator;
    for (std::size_t i = 0; i < value.size(); ++i) {
        if (value[i] == '\\' || value.substr(i, times.size()) == times) text += '\\';
        text += value[i];
    }
}

std::optional<std::array<std::string, max_parts>> split_combination(std::string_view text, std::size_t count) {
    std::array<std::string, max_parts> parts;
    std::size_t part = 0;
    while (!text.empty()) {
        const std::string_view escaped = text[0] == '\\' ? text.substr(1) : std::string_view();
        if (escaped.starts_with('\\')) {
            parts[part] += '\\';
            text.remove_prefix(2);
        } else if (escaped.starts_with(times)) {
            parts[part] += times;
            text.remove_prefix(1 + times.size());
        } else if (text.starts_with(separator)) {
            if (++part == count) return std::nullopt;
            text.remove_prefix(separator.size());
        } else if (text[0] == '\\' || text.starts_with(times)) {
            return std::nullopt;
        } else {
            parts[part] += text[0];
            text.remove_prefix(1);
        }
    }
    return part + 1 == count ? std::optional(std::move(parts)) : std::nullopt;
}

}  // namespace fm2
