// Cells: what a table holds, as text, whatever it came from. A column hands them out by the batch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fm2 {

// Some cells of one column. A missing cell is empty. `scratch` holds the text of cells that are not stored as text.
struct Batch {
    static constexpr std::size_t capacity = 128, scratch_size = 32;

    std::size_t size = 0;
    std::array<std::string_view, capacity> cells;
    std::array<std::array<char, scratch_size>, capacity> scratch;
};

class Column {
public:
    virtual ~Column() = default;
    // Puts the cells [first, first + count) into the batch; count is at most Batch::capacity.
    virtual void read(std::size_t first, std::size_t count, Batch& batch) const = 0;
};

using Columns = std::vector<std::unique_ptr<Column>>;

// Why a row cannot be used.
enum class Fault : std::uint8_t { columns, label, number, time, encoding, quote, item, value, repeated };

struct BadRow {
    std::size_t row;     // within the block
    std::int32_t field;  // -1: the row itself, or its label
    Fault fault;
    std::string value;  // what stood there, cut to a readable length
};

std::string excerpt(std::string_view value);

}  // namespace fm2
