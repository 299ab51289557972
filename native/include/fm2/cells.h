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

class Column {
public:
    virtual ~Column() = default;
    // Reads the cells [first, first + count) into the batch; count is at most Batch::capacity.
    virtual void read(std::size_t first, std::size_t count, Batch& batch) const = 0;
};

using Columns = std::vector<std::unique_ptr<Column>>;

// Why a row is bad.
enum class Fault : std::uint8_t { columns, label, number, time, encoding, quote, item, value, repeated };

struct BadRow {
    std::size_t row;     // within the block
    std::int32_t field;  // -1: the row itself, its label or its time
    Fault fault;
    std::string value;  // the offending text, shortened for error messages
};

std::string excerpt(std::string_view value);

}  // namespace fm2
