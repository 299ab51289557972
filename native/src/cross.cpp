#include "fm2/cross.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace fm2 {
namespace {

constexpr std::string_view times = "\u00d7";
constexpr std::string_view separator = " \u00d7 ";
constexpr std::size_t prefetched_rows = 8;

}  // namespace

bool Cross::is_known(const Combination& ids) const { return (ids[0] > 0) & (ids[1] > 0) & ((ids[2] > 0) | (part_count < max_parts)); }

std::uint64_t Cross::key(const Combination& ids, std::uint64_t hash) const {
    if (!shifts[1]) return hash << id_bits >> id_bits;
    const auto part = [&](std::size_t i) { return static_cast<std::uint64_t>(static_cast<std::uint32_t>(ids[i])) << shifts[i]; };
    return part(0) | part(1) | part(2);
}

std::int32_t Cross::find(const Combination& ids, std::uint64_t hash) const {
    if (!is_known(ids)) return 0;
    if (hash_bits) return hashed(ids);
    const std::size_t lines = slots.size() / line_slots;
    if (!lines) return 0;
    const std::uint64_t wanted = key(ids, hash) << id_bits, limit = std::uint64_t{1} << id_bits;
    for (std::size_t line = line_of(hash), seen = 0; seen < lines; line = line + 1 < lines ? line + 1 : 0, ++seen) {
        const std::uint64_t* slot = slots.data() + line * line_slots;
        std::uint64_t id = 0;
        for (std::size_t i = 0; i < line_slots; ++i) id = (slot[i] ^ wanted) < limit ? slot[i] ^ wanted : id;
        if ((id != 0) | (slot[line_slots - 1] == 0)) [[likely]]  // a line is filled from the front
            return id < static_cast<std::uint64_t>(size) ? static_cast<std::int32_t>(id) : 0;
    }
    return 0;
}

void Cross::set_sizes(std::int32_t new_size, const std::array<std::size_t, max_parts>& part_sizes) {
    size = new_size;
    id_bits = std::max(1u, static_cast<unsigned>(std::bit_width(static_cast<std::uint32_t>(size - 1))));
    unsigned bits = 0;
    for (std::size_t i = 0; i < part_count; ++i) {
        shifts[i] = bits;
        bits += static_cast<unsigned>(std::bit_width(part_sizes[i]));
    }
    if (bits + id_bits > 64) shifts = {};
}

std::vector<std::uint64_t> Cross::make_table(std::span<const Combination> combinations) const {
    std::vector<std::uint64_t> table(table_slots(combinations.size()));
    Cross cross = *this;
    cross.slots = table;
    for (std::size_t i = 0; i < combinations.size(); ++i) {
        if (!is_known(combinations[i])) continue;
        const std::uint64_t hash = hash_combination(combinations[i]), wanted = key(combinations[i], hash);
        std::size_t at = cross.line_of(hash) * line_slots;
        while (table[at] && table[at] >> id_bits != wanted) at = at + 1 < table.size() ? at + 1 : 0;  // half of the slots are free
        if (!table[at]) table[at] = wanted << id_bits | (i + 1);
        else if (shifts[1]) throw std::invalid_argument("a vocabulary contains a combination twice");
    }
    return table;
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
        if (r + prefetched_rows < count) prefetch(hash_combination(combination(rows + (r + prefetched_rows) * fields)));
        std::int32_t* row = rows + r * fields;
        row[field] = find(combination(row));
    }
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
