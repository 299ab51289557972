// A hash table that numbers texts: the n-th distinct text that is added gets the number n.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace fm2 {

// A read-only table over arrays stored elsewhere, such as a memory-mapped file. The arrays are not trusted: whatever they contain, a
// lookup returns a number from -1 to ends.size() - 1.
struct TableView {
    static constexpr std::int32_t absent = -1;

    // A text of up to eight bytes is its own key, so that a lookup touches one cache line. The key of a longer text is its hash, and
    // the bytes are compared as well.
    struct Slot {
        std::uint64_t key;
        std::uint32_t size;
        std::int32_t number;
    };
    struct Probe {
        std::uint64_t key, hash;
    };
    static Probe probe(std::string_view text);

    std::string_view text(std::size_t number) const;  // empty if the arrays are inconsistent
    const Slot* locate(std::string_view text, Probe at) const;  // the text's slot or the free slot for it; null if there is neither

    std::int32_t find(std::string_view text) const;
    // Looks up many texts, and prefetches their slots.
    void find(std::span<const std::string_view> texts, std::int32_t* numbers) const;

    std::span<const Slot> slots;  // their number is zero or a power of two
    std::span<const std::uint64_t> ends;
    std::span<const char> bytes;
};

class Table {
public:
    using Slot = TableView::Slot;
    static constexpr std::int32_t absent = TableView::absent;

    Table();

    std::size_t size() const { return ends_.size(); }
    TableView view() const { return {slots_, ends_, bytes_}; }
    std::string_view text(std::size_t number) const { return view().text(number); }

    std::int32_t find(std::string_view text) const { return view().find(text); }
    std::int32_t add(std::string_view text);

    void find(std::span<const std::string_view> texts, std::int32_t* numbers) const { view().find(texts, numbers); }
    void add(std::span<const std::string_view> texts, std::int32_t* numbers);

private:
    std::int32_t add(std::string_view text, TableView::Probe at);
    void grow();

    std::vector<Slot> slots_;
    std::vector<std::uint64_t> ends_;
    std::vector<char> bytes_;
};

// Returns the table of the texts that end at ends[0], ends[1], ... in `bytes`. Throws std::invalid_argument if a text occurs twice.
Table table_of(std::string_view bytes, std::span<const std::uint64_t> ends);

}  // namespace fm2
