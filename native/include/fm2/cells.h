// The cells of a column as texts, whatever the column was read from.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/value_text.h"

namespace fm2 {

// Consecutive cells of one column. A missing cell is empty. A cell that is not stored as text is formatted into its buffer.
struct Batch {
    static constexpr std::size_t capacity = 128;

    std::size_t size = 0;
    std::array<std::string_view, capacity> cells;
    std::array<TextBuffer, capacity> buffers;
};

struct ListCell;
struct ListFormat;

class Column {
public:
    virtual ~Column() = default;
    // Reads the cells [first, first + count) into the batch; count is at most Batch::capacity.
    virtual void read(std::size_t first, std::size_t count, Batch& batch) const = 0;
    // Reads a cell that is stored as a list. Returns false if the column has no lists: then the text of a cell has to be split.
    virtual bool read_list(std::size_t /*row*/, const ListFormat& /*format*/, ListCell& /*cell*/) const { return false; }
};

using Columns = std::vector<std::unique_ptr<Column>>;

// Why a row is bad.
enum class Fault : std::uint8_t {
    columns,
    label,
    number,
    time,
    encoding,
    quote,
    item,
    value,
    repeated,
    clicks,
    impressions,
    excess,
    weight,
    value_weight,
    value_weights,
    values,
    quoted_separator
};

struct BadRow {
    std::size_t row;     // within the block
    std::int32_t field;  // -1: the row itself, its label or its time
    Fault fault;
    std::string value;  // the offending text, shortened for error messages
};

std::string excerpt(std::string_view value);

}  // namespace fm2
