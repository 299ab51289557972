// Text in, cells out: separated values and libffm's format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/cells.h"
#include "fm2/table.h"

namespace fm2 {

struct TextFormat {
    char separator = '\t';
    bool quotes = false;      // a cell may stand in double quotes, and hold separators and line ends there
    std::size_t columns = 0;  // that a row must have
    // "label field:feature:value ...", a column for the label and one for each of these fields.
    bool libffm = false;
    Table libffm_fields;
};

// The cells of one piece of text, column by column. The text itself must stay where it is.
class TextBlock {
public:
    // Reads whole rows; with `last`, the final one needs no line end. Empty lines are not rows.
    void read(std::string_view text, const TextFormat& format, bool last);

    std::size_t rows() const { return rows_.size(); }
    std::size_t columns() const { return columns_; }
    std::size_t consumed() const { return consumed_; }  // bytes of the text that were rows or empty lines
    std::size_t lines() const { return lines_; }        // line ends among them
    std::size_t line(std::size_t row) const { return rows_[row].line; }  // on which a row begins, from 0
    std::string_view row(std::size_t row) const;                         // as it stands, without the line end
    const std::vector<BadRow>& bad() const { return bad_; }
    std::unique_ptr<Column> column(std::size_t index) const;

private:
    struct Cell {
        std::uint32_t begin, size;
    };
    struct Row {
        std::uint32_t begin, size, line, slot;
    };
    enum class Quotes { closed, cut, broken };
    class View;

    void read_plain(const TextFormat& format, bool last);
    void read_quoted(const TextFormat& format, bool last);
    void read_libffm(const TextFormat& format, bool last);
    bool read_quoted_row(std::size_t& at, const TextFormat& format, bool last);
    Quotes read_quotes(std::size_t& place, char separator, bool last, Cell& value);
    void skip_broken_line(std::size_t& at);
    void read_libffm_item(std::string_view item, const TextFormat& format);

    Cell* cells(std::size_t column) { return cells_.data() + column * capacity_ + slots_; }  // of the row being read
    Cell cell(const char* begin, std::size_t size) const;
    void finish_row(std::size_t begin, std::size_t end);
    void fail_row(Fault fault, std::string_view value);

    std::string_view text_;
    std::size_t columns_ = 0, capacity_ = 0, slots_ = 0, consumed_ = 0, lines_ = 0;
    bool failed_ = false;      // the row being read is bad already
    std::vector<Cell> cells_;  // [column][slot]; a begin beyond the text lies in side_
    std::string side_;         // cells whose text differs from what stands in the file
    std::vector<Row> rows_;
    std::vector<BadRow> bad_;
    std::vector<std::uint32_t> marks_;
};

}  // namespace fm2
