// A table from texts to numbers: the n-th different text that is added gets the number n.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace fm2 {

class Table {
public:
    static constexpr std::int32_t absent = -1;

    Table();

    std::size_t size() const { return ends_.size(); }
    std::string_view text(std::size_t number) const;

    std::int32_t find(std::string_view text) const;
    std::int32_t add(std::string_view text);

    // The same for many texts; their places in the table are fetched before they are read.
    void find(std::span<const std::string_view> texts, std::int32_t* numbers) const;
    void add(std::span<const std::string_view> texts, std::int32_t* numbers);

private:
    // A text of up to eight bytes is its own key, so that finding it touches one cache line; a longer one is known by
    // its hash and compared in bytes_.
    struct Slot {
        std::uint64_t key;
        std::uint32_t size;
        std::int32_t number;
    };
    struct Probe {
        std::uint64_t key, hash;
    };

    static Probe probe(std::string_view text);
    const Slot& locate(std::string_view text, Probe at) const;
    std::int32_t add(std::string_view text, Probe at);
    void grow();

    std::vector<Slot> slots_;
    std::vector<std::uint64_t> ends_;
    std::vector<char> bytes_;
};

}  // namespace fm2
