// A table from texts to numbers: the n-th different text that is added gets the number n.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace fm2 {

// A table that is there to be asked, wherever its parts lie. They may be anyone's: whatever they hold, an answer is a number from -1 to
// below ends.size().
struct TableView {
    static constexpr std::int32_t absent = -1;

    // A text of up to eight bytes is its own key, so that finding it touches one cache line; a longer one is known by
    // its hash and compared in the bytes.
    struct Slot {
        std::uint64_t key;
        std::uint32_t size;
        std::int32_t number;
    };
    struct Probe {
        std::uint64_t key, hash;
    };
    static Probe probe(std::string_view text);

    std::string_view text(std::size_t number) const;  // empty where the parts do not fit each other
    const Slot* locate(std::string_view text, Probe at) const;  // the text's slot, or the free one where it would go; null: neither

    std::int32_t find(std::string_view text) const;
    // The same for many texts; their places in the table are fetched before they are read.
    void find(std::span<const std::string_view> texts, std::int32_t* numbers) const;

    std::span<const Slot> slots;  // a power of two of them, or none
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

// The table of texts that end at ends[0], ends[1], ... of the bytes. Throws std::invalid_argument where one is there twice.
Table table_of(std::string_view bytes, std::span<const std::uint64_t> ends);

}  // namespace fm2
