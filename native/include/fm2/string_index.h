// A hash table from strings to numbers: the n-th distinct string that is added gets the number n.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace fm2 {

// A read-only index whose parts are stored elsewhere, for example in a mapped model file. The parts are not trusted: whatever they
// contain, a look-up returns a number between -1 and ends.size() - 1.
struct StringIndexView {
    static constexpr std::int32_t absent = -1;

    // A string of up to eight bytes is its own key, so that a look-up touches one cache line. The key of a longer string is its hash; its
    // bytes are compared as well.
    struct Slot {
        std::uint64_t key;
        std::uint32_t size;
        std::int32_t number;
    };
    struct Probe {
        std::uint64_t key, hash;
    };
    static Probe probe(std::string_view text);

    std::string_view text(std::size_t number) const;  // empty if the parts are inconsistent
    const Slot* locate(std::string_view text, Probe at) const;  // the slot of the text or the free slot for it; null if the index is full

    std::int32_t find(std::string_view text) const;
    // Looks up many texts; prefetches their slots.
    void find(std::span<const std::string_view> texts, std::int32_t* numbers) const;

    std::span<const Slot> slots;  // empty, or a power of two
    std::span<const std::uint64_t> ends;
    std::span<const char> bytes;
};

class StringIndex {
public:
    using Slot = StringIndexView::Slot;
    static constexpr std::int32_t absent = StringIndexView::absent;

    StringIndex();

    std::size_t size() const { return ends_.size(); }
    StringIndexView view() const { return {slots_, ends_, bytes_}; }
    std::string_view text(std::size_t number) const { return view().text(number); }

    std::int32_t find(std::string_view text) const { return view().find(text); }
    std::int32_t add(std::string_view text);

    void find(std::span<const std::string_view> texts, std::int32_t* numbers) const { view().find(texts, numbers); }
    void add(std::span<const std::string_view> texts, std::int32_t* numbers);

private:
    std::int32_t add(std::string_view text, StringIndexView::Probe at);
    void grow();

    std::vector<Slot> slots_;
    std::vector<std::uint64_t> ends_;
    std::vector<char> bytes_;
};

// Builds the index of the strings that end at ends[0], ends[1], ... of the bytes. Throws std::invalid_argument if a string occurs twice.
StringIndex make_string_index(std::string_view bytes, std::span<const std::uint64_t> ends);

}  // namespace fm2
