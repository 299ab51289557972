// Splits text files into cells: separated values and the libffm format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/cells.h"
#include "fm2/string_index.h"

namespace fm2 {

struct TextFormat {
    char separator = '\t';
    bool quotes = false;      // cells may be in double quotes, and then contain separators and line ends
    std::size_t columns = 0;  // number of cells in a valid row
    bool libffm = false;      // "label field:feature:value ...": one column for the label, then one for each of these fields
    StringIndex libffm_fields;
    // By libffm field: whether it may repeat, and whether its features may have weights (values other than 1).
    enum class Libffm : std::uint8_t { single, multivalued, weighted };
    std::vector<Libffm> libffm_lists;
};

// The cells of a piece of text, by column. Refers to the text, which must stay in memory.
class TextBlock {
public:
    // Reads complete rows. With `last`, the final row needs no line end. Empty lines are not rows.
    void read(std::string_view text, const TextFormat& format, bool last);

    std::size_t rows() const { return rows_.size(); }
    std::size_t columns() const { return columns_; }
    std::size_t consumed() const { return consumed_; }                   // bytes in rows and empty lines
    std::size_t lines() const { return lines_; }                         // line ends among the consumed bytes
    std::size_t line(std::size_t row) const { return rows_[row].line; }  // the line where a row begins, from 0
    std::string_view row(std::size_t row) const;                         // the unchanged text of a row, without the line end
    const std::vector<BadRow>& bad() const { return bad_; }
    std::unique_ptr<Column> column(std::size_t index) const;

private:
    struct Cell {
        std::uint32_t begin, size;
    };
    struct Row {
        std::uint32_t begin, size, line, slot;
    };
    // Where a cell ends, and where the separator, line end or end of text after it is. They differ by a carriage return.
    struct CellEnd {
        std::size_t end, next;
    };
    enum class Status { complete, truncated, broken };  // truncated: the text ends before the cell does
    class View;
    class LibffmList;

    void read_plain();
    void read_quoted();
    bool read_quoted_row(std::size_t& at);
    Status read_unquoted_cell(std::size_t begin, Cell& value, CellEnd& after) const;
    Status read_quoted_cell(std::size_t begin, Cell& value, CellEnd& after);
    std::size_t skip_broken_line(std::size_t begin);
    void read_libffm(const TextFormat& format);
    void read_libffm_line(std::string_view line, const TextFormat& format);
    void read_libffm_label(std::string_view label);
    void read_libffm_item(std::string_view item, const TextFormat& format);
    void finish_libffm_lists();

    bool is_list(std::size_t field) const { return !lists_.empty() && libffm_lists_[field] != TextFormat::Libffm::single; }
    Cell* cells(std::size_t column) { return cells_.data() + column * capacity_ + slots_; }  // of the current row
    Cell cell(std::string_view text) const;
    Cell cell_since(std::size_t copied) const;  // the cell that consists of the bytes of copies_ from `copied` on
    void finish_row(std::size_t begin, std::size_t end);
    void fail_row(Fault fault, std::string_view value);

    std::string_view text_;
    char separator_ = 0;
    bool last_ = false;
    std::size_t columns_ = 0, capacity_ = 0, slots_ = 0, consumed_ = 0, lines_ = 0;
    bool failed_ = false;      // the current row is bad
    std::vector<Cell> cells_;  // [column][slot]; a begin beyond the end of the text points into copies_
    std::string copies_;       // cells that differ from the text of the file, such as unescaped quotes
    std::vector<Row> rows_;
    std::vector<BadRow> bad_;
    std::vector<std::uint32_t> marks_;
    std::vector<std::string>
        lists_;  // by libffm field: the items of the current row, separated by blanks; none if no field is multi-valued
    std::vector<TextFormat::Libffm> libffm_lists_;
};

}  // namespace fm2
