// The values of a request as texts, by column, before they are encoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fm2/file_encoder.h"
#include "fm2/json.h"

namespace fm2 {

// A value: a text, which is empty if it is missing, or a list of values.
struct Cell {
    static constexpr std::int32_t absent = -2, no_list = -1;

    std::string_view text;
    std::int32_t list = absent;  // the number of a list; absent: the request does not have this cell
};

// Cells in any layout: those of a column are `stride` apart, starting from `first`. Texts belong to the request or the arena. Starting
// again keeps the memory.
class CellTable {
public:
    void start(std::size_t columns);
    void place(std::size_t column, std::size_t first, std::size_t stride) { places_[column] = {first, stride}; }
    // Takes a row from consecutive cells, in the order of the columns.
    void place_row(std::size_t first) {
        for (std::size_t c = 0; c < columns(); ++c) place(c, first + c, 0);
    }
    bool has(std::size_t column) const { return places_[column].stride != nowhere; }
    std::size_t columns() const { return places_.size(); }
    const Cell& cell(std::size_t column, std::size_t row) const { return cells[places_[column].first + row * places_[column].stride]; }

    // A list has the items that were added since the last one; of weighted items, value and weight alternate.
    std::int32_t finish_list(bool weighted);
    bool has_lists() const { return !lists_.empty(); }

    // Encodes all rows; every column must have been placed. Up to `threads` threads encode many rows.
    void encode(const CompiledModel& model, RowBuffer& out, std::size_t threads);
    // The same, but takes the ids of all fields from the first row of `common`, except the derived ones and those with a nonzero entry in
    // `selected`.
    void encode(const CompiledModel& model, RowBuffer& common, std::span<const std::uint8_t> selected, RowBuffer& out, std::size_t threads);

    struct Place {
        std::size_t first, stride;
    };
    // Exchanges the places of all columns.
    void swap_places(std::vector<Place>& places) { places_.swap(places); }

    std::size_t rows = 0;
    std::vector<Cell> cells;
    std::vector<std::string_view> items;  // of all lists
    TextArena arena;

private:
    static constexpr std::size_t nowhere = ~std::size_t{0};
    struct ItemRange {
        std::size_t first, size;
        bool weighted;
    };
    class View;

    void encode_by_row(const CompiledModel& model, RowBuffer& out);
    const Columns& views();

    std::vector<Place> places_;
    std::vector<ItemRange> lists_;
    std::size_t listed_ = 0;  // items that belong to finished lists
    std::vector<std::string_view> row_;
    Columns views_;
};

}  // namespace fm2
