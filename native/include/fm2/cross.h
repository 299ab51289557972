// Cross fields: the feature of a row is the combination of its features in two or three other fields, the parts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/hash.h"

namespace fm2 {

constexpr std::size_t max_parts = 3;

// The ids of the parts; the last one is 0 if there are only two.
using Combination = std::array<std::int32_t, max_parts>;

inline std::uint64_t hash_combination(const Combination& ids) {
    const auto id = [&](std::size_t part) { return static_cast<std::uint64_t>(static_cast<std::uint32_t>(ids[part])); };
    return hash_packed(id(0) | id(1) << 32, id(2));
}

// How the id of a cross field follows from the ids of its parts. The memory is stored elsewhere, for example in a mapped model file, and is
// not trusted: whatever it contains, an id is between 0 and size - 1. A combination with an unknown part is unknown.
//
// The hash table from combinations to ids is small, because most look-ups miss the cache: a slot of 8 bytes has the key of a combination
// and its id, and a look-up reads one cache line of 8 slots, or the next ones if it is full. The key is the combination itself if it fits
// besides the id, as it does for two fields of up to a million features each and a million combinations. Otherwise it is a hash of at least
// 33 bits, so that about one of a billion unknown combinations is taken for a known one.
struct Cross {
    std::size_t field = 0;  // the column of its ids
    std::array<std::size_t, max_parts> parts{};
    std::size_t part_count = 0;
    std::size_t last_part = 0;  // the part that is encoded last
    std::int32_t size = 1;  // the number of its features, including the unknown one

    // With a vocabulary: the table, of complete lines, and how its keys are made.
    std::span<const std::uint64_t> slots;
    unsigned id_bits = 1;
    std::array<unsigned, max_parts> shifts{};  // of the parts in a key; all 0: the key is a hash
    // Without: the bits of the hash, and by part the hashes of its features; empty if the part is hashed itself.
    unsigned hash_bits = 0;
    std::array<std::span<const std::uint64_t>, max_parts> hashes;

    std::span<const std::size_t> fields() const { return {parts.data(), part_count}; }
    Combination combination(const std::int32_t* row) const {
        return {row[parts[0]], row[parts[1]], part_count == max_parts ? row[parts[2]] : 0};
    }
    std::int32_t find(const Combination& ids) const { return find(ids, hash_combination(ids)); }
    std::int32_t find(const Combination& ids, std::uint64_t hash) const;  // with the hash of the combination
    // GCC drops calls of a function that only prefetches, unless they are inlined.
    [[gnu::always_inline]] void prefetch(std::uint64_t hash) const {
        if (!slots.empty()) __builtin_prefetch(&slots[line_of(hash) * line_slots]);
    }
    // Sets the number of features, and how the keys are made.
    void set_sizes(std::int32_t size, const std::array<std::size_t, max_parts>& part_sizes);
    // Returns the table of combinations: combination i has the id i + 1. One with the id 0 in a part is left out, and so is one whose hash
    // is the key of another. Throws std::invalid_argument if a combination occurs twice.
    std::vector<std::uint64_t> make_table(std::span<const Combination> combinations) const;

    static constexpr std::size_t line_slots = 8;
    static constexpr std::size_t combinations_per_line = 4;  // of 8 slots, so that few lines are full
    static std::size_t table_slots(std::size_t combinations) { return (combinations / combinations_per_line + 1) * line_slots; }
    // Writes the ids of the cross into rows [count, fields] that have the ids of its parts.
    void encode(std::int32_t* rows, std::size_t count, std::size_t fields) const;

private:
    bool is_known(const Combination& ids) const;
    std::int32_t hashed(const Combination& ids) const;
    std::uint64_t key(const Combination& ids, std::uint64_t hash) const;
    std::size_t line_of(std::uint64_t hash) const {
        return static_cast<std::size_t>(static_cast<Wide>(hash) * (slots.size() / line_slots) >> 64);
    }
};

// The hash of each value of a vocabulary by id, for crosses without a vocabulary. The unknown feature has the hash 0.
std::vector<std::uint64_t> feature_hashes(std::string_view bytes, std::span<const std::uint64_t> ends);

// The text of a combination, such as "u1 × ad7", identifies it whatever its parts contain: "×" and "\" in a part are written as "\×" and
// "\\". A missing part is empty.
void append_part(std::string_view value, bool first, std::string& text);
// Splits the text into its parts. Returns nothing if it is not the text of `count` parts.
std::optional<std::array<std::string, max_parts>> split_combination(std::string_view text, std::size_t count);

}  // namespace fm2
