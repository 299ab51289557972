// The first pass over a log: every field's values get provisional numbers, in the order in which they appear.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "fm2/arrow.h"
#include "fm2/fields.h"
#include "fm2/table.h"
#include "fm2/text.h"

namespace fm2 {

// What was read from one piece of a log. It stays until the next piece is read.
struct Block {
    std::size_t rows = 0, consumed = 0, lines = 0;
    // [field][row]: a number in the field's table; the bucket of a hashed field; for quantiles, which are not known
    // yet, the bits of the value as a float, NaN where it is missing.
    std::vector<std::int32_t> numbers;
    std::vector<std::uint8_t> labels;
    std::vector<std::int64_t> times;  // seconds, where the collector has a time column
    std::vector<BadRow> bad;          // in the order of the rows
};

class Collector {
public:
    struct Time {
        std::size_t column;
        TimeFormat format;
    };

    Collector(std::vector<Field> fields, std::size_t label_column, std::optional<Time> time,
              std::vector<std::string> missing, std::size_t threads);

    // Column i of the fields is column positions[i] of the source.
    const Block& read(std::string_view text, const TextFormat& format, const std::vector<std::size_t>& positions, bool last);
    const Block& read(const ArrowReader& table, std::size_t first, std::size_t count, const std::vector<std::size_t>& positions);

    const Table& table(std::size_t field) const { return tables_[field]; }
    // Of the text last read: the line on which a row begins, counted from 0, and the row as it stands.
    std::size_t line(std::size_t row) const;
    std::string_view row_text(std::size_t row) const;

private:
    struct Piece {
        Columns columns;  // in the order of the fields' columns
        std::size_t first, rows, place;
    };
    struct TextPart {
        TextBlock block;
        std::size_t first_row, first_line;
    };

    const Block& collect(const std::vector<Piece>& pieces);
    void collect_field(std::size_t index, const Piece& piece);
    void collect_labels(const Piece& piece);
    void collect_times(const Piece& piece);
    const TextPart& part_of(std::size_t row) const;

    std::vector<Field> fields_;
    std::size_t label_column_;
    std::optional<Time> time_;
    CellReader reader_;
    std::size_t threads_;
    std::vector<Table> tables_;
    std::vector<std::unordered_set<std::int32_t>> garbled_;  // numbers in the tables whose text is not UTF-8
    std::vector<TextPart> parts_;
    std::vector<std::vector<BadRow>> bad_;  // by field, then labels, then times, so that threads do not meet
    Block block_;
};

}  // namespace fm2
