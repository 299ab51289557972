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

// A slot of the hash table from combinations to ids. The model file has the same slots.
struct CrossSlot {
    Combination parts;
    std::int32_t id;  // 0: the slot is free
};

// How the id of a cross field follows from the ids of its parts. The memory is stored elsewhere, for example in a mapped model file, and is
// not trusted: whatever it contains, an id is between 0 and size - 1. A combination with an unknown part is unknown.
struct Cross {
    std::size_t field = 0;  // the column of its ids
    std::array<std::size_t, max_parts> parts{};
    std::size_t part_count = 0;
    std::int32_t size = 1;  // the number of its features, including the unknown one

    // With a vocabulary: the table, whose size is a power of two.
    std::span<const CrossSlot> slots;
    // Without: the bits of the hash, and by part the hashes of its features; empty if the part is hashed itself.
    unsigned hash_bits = 0;
    std::array<std::span<const std::uint64_t>, max_parts> hashes;

    std::span<const std::size_t> fields() const { return {parts.data(), part_count}; }
    Combination combination(const std::int32_t* row) const {
        Combination ids{};
        for (std::size_t i = 0; i < part_count; ++i) ids[i] = row[parts[i]];
        return ids;
    }
    std::int32_t find(const Combination& ids) const;
    // Writes the ids of the cross into rows [count, fields] that have the ids of its parts.
    void encode(std::int32_t* rows, std::size_t count, std::size_t fields) const;

private:
    std::int32_t hashed(const Combination& ids) const;
};

// The hash table of combinations: combination i has the id i + 1. One with the id 0 in a part is left out. Throws std::invalid_argument if
// a combination occurs twice.
std::vector<CrossSlot> make_cross_table(std::span<const Combination> combinations, std::size_t parts);

// The hash of each value of a vocabulary by id, for crosses without a vocabulary. The unknown feature has the hash 0.
std::vector<std::uint64_t> feature_hashes(std::string_view bytes, std::span<const std::uint64_t> ends);

// The text of a combination, such as "u1 × ad7", identifies it whatever its parts contain: "×" and "\" in a part are written as "\×" and
// "\\". A missing part is empty.
void append_part(std::string_view value, bool first, std::string& text);
// Splits the text into its parts. Returns nothing if it is not the text of `count` parts.
std::optional<std::array<std::string, max_parts>> split_combination(std::string_view text, std::size_t count);

}  // namespace fm2
