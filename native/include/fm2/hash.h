// The hash of hashed fields and vocabularies. Its values are part of the file formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace fm2 {

__extension__ using Wide = unsigned __int128;

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    const auto product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Packs up to eight bytes into one number; number and length together identify the text.
inline std::uint64_t pack_short(const char* data, std::size_t size) {
    const auto byte = [data](std::size_t i) { return static_cast<std::uint64_t>(static_cast<unsigned char>(data[i])); };
    if (size >= 4) {
        std::uint32_t head, tail;
        std::memcpy(&head, data, 4);
        std::memcpy(&tail, data + size - 4, 4);
        return head | static_cast<std::uint64_t>(tail) << 32;
    }
    return size ? byte(0) | byte(size / 2) << 8 | byte(size - 1) << 16 : 0;
}

inline std::uint64_t hash_packed(std::uint64_t packed, std::size_t size) {
    return mix(packed ^ 0x9e3779b97f4a7c15u, (size + 1) * 0xd1342543de82ef95u);
}

inline std::uint64_t hash_long(std::string_view text) {
    std::uint64_t state = text.size() * 0x9e3779b97f4a7c15u, a, b;
    const char* data = text.data();
    const char* last = data + text.size() - 8;  // the last eight bytes are always mixed in, even if they overlap
    for (; data < last; data += 8) {
        std::memcpy(&a, data, 8);
        state = mix(state ^ a, 0xa0761d6478bd642fu);
    }
    std::memcpy(&b, last, 8);
    return mix(state ^ b, 0xe7037ed1a0b428dbu);
}

inline std::uint64_t hash_bytes(std::string_view text) {
    return text.size() <= 8 ? hash_packed(pack_short(text.data(), text.size()), text.size()) : hash_long(text);
}

}  // namespace fm2
