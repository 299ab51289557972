// The cells of multi-valued fields: how they are written, and the weighted values in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/cells.h"

namespace fm2 {

enum class Pooling : std::uint8_t { mean, sum, sqrt };

// How a cell of a multi-valued field is read.
struct ListFormat {
    char separator = '|';
    Pooling pooling = Pooling::mean;
    std::size_t max_values = 0;  // 0: no limit
    bool keep_last = false;      // keep the last max_values values instead of the first
    bool weighted = false;
    bool empty_is_missing = false;
    std::optional<std::size_t> weight_column;  // index among the columns that are read

    bool weights_in_cell() const { return weighted && !weight_column; }
};

constexpr std::size_t most_values = 65'536;  // in a cell of a field without max_values

// The values of one cell, and their weights. Clearing keeps the memory.
struct ListCell {
    bool missing = false;   // unlike an empty list
    std::size_t total = 0;  // the number of values, including those that max_values drops
    std::vector<std::string_view> values;
    std::vector<float> weights;  // as many as values, or none: all are 1
    std::vector<std::size_t> invalid;  // the values whose weight is invalid; they have the weight 1
    std::optional<Fault> fault;
    std::string culprit;       // the offending text
    bool is_readable = true;   // false if the fault concerns the whole cell, and not only the weights of some values

    void clear();
    void fail(Fault reason, std::string_view text);
    // Sets the total and returns the range of values to read. It is empty if there are too many.
    std::pair<std::size_t, std::size_t> keep(std::size_t count, const ListFormat& format);
    void add_weight(std::string_view value, std::string_view weight);
    // Adds the weight after the last colon of an item, or 1 if there is none. Returns the value before it.
    std::string_view add_weight_of(std::string_view item);

    // Adds a value whose text does not last. `values` has it after use_copies().
    void copy(std::string_view value);
    void use_copies();
    std::span<const std::size_t> copied() const { return ends_; }

private:
    std::string copies_;
    std::vector<std::size_t> ends_;
};

// Splits the text of a cell. An empty text is missing.
void split_cell(std::string_view text, const ListFormat& format, ListCell& cell);

// Sets the weights of a cell to the values of another cell.
void set_weights(const ListCell& weights, ListCell& cell);

// Divides weights by their sum (mean), or by the square root of the sum of their squares (sqrt).
void pool_weights(Pooling pooling, std::span<float> weights);

}  // namespace fm2
