// Reads a log and replaces values with codes: the n-th distinct value of a field gets the code n.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "fm2/arrow.h"
#include "fm2/string_index.h"
#include "fm2/text.h"
#include "fm2/transform.h"

namespace fm2 {

// The rows of one piece of a log. Valid until the collector reads the next piece.
struct Block {
    std::size_t rows = 0, consumed = 0, lines = 0;
    // [field][row]: the code of a value; the hash of a hashed field; for quantiles, whose boundaries are not known yet, the bits of the
    // value as a float, NaN if it is missing.
    std::vector<std::int32_t> codes;
    std::vector<std::uint8_t> labels;
    std::vector<std::int64_t> times;  // seconds since 1970, if the collector has a time column
    std::vector<BadRow> bad;          // ordered by row
};

class Collector {
public:
    struct Time {
        std::size_t column;
        TimeFormat format;
    };

    Collector(std::vector<Field> fields, std::size_t label_column, std::optional<Time> time, std::vector<std::string> missing,
              std::size_t threads);

    // Column i of the fields and the label is column positions[i] of the source.
    const Block& read(std::string_view text, const TextFormat& format, const std::vector<std::size_t>& positions, bool last);
    const Block& read(const ArrowReader& frame, std::size_t first, std::size_t count, const std::vector<std::size_t>& positions);

    const StringIndex& values(std::size_t field) const { return values_[field]; }
    // For the most recent text: the line where a row begins, from 0, and the unchanged text of the row.
    std::size_t line(std::size_t row) const;
    std::string_view row_text(std::size_t row) const;

private:
    // The rows [first, first + rows) of the columns become the rows of the block from `block_row` on.
    struct Piece {
        Columns columns;
        std::size_t first, rows, block_row;
    };
    struct TextPart {
        TextBlock block;
        std::size_t first_row, first_line;
    };

    const Block& collect(const std::vector<Piece>& pieces);
    void collect_field(std::size_t index, const Piece& piece);
    template <class Body>
    void for_cells(std::size_t column, const Piece& piece, const Body& body) const;
    void collect_quantiles(std::size_t index, const Piece& piece);
    void add_bad(std::size_t task, std::size_t row, std::int32_t field, Fault fault, std::string_view value);
    void add_shape_faults(std::vector<BadRow> misshapen);
    void collect_labels(const Piece& piece);
    void collect_times(const Piece& piece);
    const TextPart& part_of(std::size_t row) const;

    std::vector<Field> fields_;
    std::size_t label_column_;
    std::optional<Time> time_;
    CellReader reader_;
    std::size_t threads_;
    std::vector<StringIndex> values_;                            // by field
    std::vector<std::unordered_set<std::int32_t>> invalid_utf8_;  // by field: codes whose text is not valid UTF-8
    std::vector<TextPart> parts_;
    std::vector<std::vector<BadRow>> bad_;  // by field, then labels, then times: one list per task
    Block block_;
};

// Adds 1 to counts[field][code] for every row with counted[row] = 1. codes is [field][row]. A field without counts is skipped.
void count_codes(const std::int32_t* codes, std::size_t rows, std::span<const std::uint8_t> counted,
                 const std::vector<std::span<std::int64_t>>& counts, std::size_t threads);

// Computes ids[i][field] = ids_of[field][code of row order[i]].
void codes_to_ids(const std::int32_t* codes, std::size_t rows, std::span<const std::int32_t> order,
                  const std::vector<std::span<const std::int32_t>>& ids_of, std::int32_t* ids, std::size_t threads);

}  // namespace fm2
