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
#include "fm2/rows.h"
#include "fm2/string_index.h"
#include "fm2/text.h"
#include "fm2/transform.h"

namespace fm2 {

// The rows of one piece of a log. Valid until the collector reads the next piece.
struct Block {
    std::size_t rows = 0, consumed = 0, lines = 0;
    // [field][row]: the code of a value; the hash of a hashed field; for transforms whose boundaries are not known yet, the bits of
    // the number as a float, NaN if it is missing; for a multi-valued field, whose codes are in its lists, whether the cell is missing.
    std::vector<std::int32_t> codes;
    std::vector<ListBuffer> lists;  // by field: the codes of multi-valued fields, a list per row, with their weights after pooling
    std::vector<std::uint8_t> labels;                // if the collector has no column of impressions
    std::vector<std::uint32_t> clicks, impressions;  // if it has one
    std::vector<float> weights;                      // if the collector has a column of weights
    std::vector<std::int64_t> times;                 // seconds since 1970, if the collector has a time column
    std::vector<BadRow> bad;                         // ordered by row
};

// The columns that say what a row counts. With impressions, the label is a number of clicks.
struct Targets {
    std::size_t label;
    std::optional<std::size_t> impressions, weight;
};

class Collector {
public:
    struct Time {
        std::size_t column;
        TimeFormat format;
    };

    // owners[f] is the field whose codes field f uses; without owners, every field has its own.
    Collector(std::vector<Field> fields, Targets targets, std::optional<Time> time, std::vector<std::string> missing, std::size_t threads,
              std::vector<std::size_t> owners = {});

    // Column i of the fields and the label is column positions[i] of the source.
    const Block& read(std::string_view text, const TextFormat& format, const std::vector<std::size_t>& positions, bool last);
    const Block& read(const ArrowReader& frame, std::size_t first, std::size_t count, const std::vector<std::size_t>& positions);

    std::size_t fields() const { return fields_.size(); }
    const Field& field(std::size_t index) const { return fields_[index]; }
    const StringIndex& values(std::size_t field) const { return values_[owners_[field]]; }
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
    void collect_lists(std::size_t index, const Piece& piece);
    template <class Fail>
    void find_codes(std::size_t index, std::span<const std::string_view> tokens, std::int32_t* codes, const Fail& fail);
    template <class Body>
    void for_cells(std::size_t column, const Piece& piece, const Body& body) const;
    void collect_numbers(std::size_t index, const Piece& piece);
    void add_bad(std::size_t task, std::size_t row, std::int32_t field, Fault fault, std::string_view value);
    void add_shape_faults(std::vector<BadRow> misshapen);
    void collect_labels(const Piece& piece);
    void collect_counts(const Piece& piece);
    void collect_weights(const Piece& piece);
    void collect_times(const Piece& piece);
    const TextPart& part_of(std::size_t row) const;

    std::vector<Field> fields_;
    Targets targets_;
    std::optional<Time> time_;
    CellReader reader_;
    std::size_t threads_;
    std::vector<std::size_t> owners_;
    std::vector<std::vector<std::size_t>> sharing_;               // by owner: the fields that use its codes
    std::vector<StringIndex> values_;                             // by owner
    std::vector<std::unordered_set<std::int32_t>> invalid_utf8_;  // by owner: codes whose text is not valid UTF-8
    std::vector<TextPart> parts_;
    std::vector<std::vector<BadRow>> bad_;  // by field, then labels, then times: one list per task
    Block block_;
};

// Adds counted[row] to counts[field][code] for every row. codes is [field][row]. A field without counts is skipped. In a multi-valued
// field, every value of a row's list counts.
template <class Count>
void count_codes(const std::int32_t* codes, std::size_t rows, std::span<const Lists> lists, std::span<const Count> counted,
                 const std::vector<std::span<std::int64_t>>& counts, std::size_t threads);

// Computes ids[i][field] = ids_of[field][code of row order[i]].
void codes_to_ids(const std::int32_t* codes, std::size_t rows, std::span<const std::int32_t> order,
                  const std::vector<std::span<const std::int32_t>>& ids_of, std::int32_t* ids, std::size_t threads);

}  // namespace fm2
