// How cells become features: transforms of numbers and times (section 5.1 of the paper), and fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/cells.h"
#include "fm2/hash.h"
#include "fm2/list_cell.h"
#include "fm2/time_format.h"

namespace fm2 {

std::optional<double> parse_number(std::string_view text);  // finite numbers only

// The transform of the paper's code: ceil(ln(x)^2 + 1), which is at least 3, if x > 2, else x. Fractions are rounded down first.
std::int64_t log_square(double x);

// The bucket of a value; a boundary belongs to the bucket above it.
std::size_t bucket(float value, const std::vector<float>& boundaries);

struct Transform {
    enum class Kind : std::uint8_t { none, log_square, quantiles, weekday, hour, interpolate, linear };

    Kind kind = Kind::none;
    std::vector<float> boundaries;   // of quantiles; the knots of interpolate; mean and standard deviation of linear
    std::optional<TimeFormat> time;  // of weekday and hour

    // Replaces every cell with its token, the text that identifies its feature. A missing cell stays empty. Adds the indices of cells that
    // cannot be parsed to `bad`, and leaves these cells unchanged.
    void apply(Batch& batch, std::vector<std::size_t>& bad) const;
    bool learns() const { return kind == Kind::quantiles || kind == Kind::interpolate || kind == Kind::linear; }  // from training rows
    Fault fault() const;  // the fault of a cell that cannot be parsed
    std::optional<std::int64_t> token(std::string_view cell) const;  // of a number or a time
};

bool is_utf8(std::string_view text);

struct Field {
    std::size_t column = 0;  // index among the columns that are read
    Transform transform;
    unsigned hash_bits = 0;  // 0 if the field has a vocabulary
    std::optional<ListFormat> list;  // of a multi-valued field
    std::vector<std::size_t> parts;  // of a derived field, which has no column: the fields that it follows from
    bool trees = false;  // whether these are the inputs of trees, or combined by a cross

    bool is_derived() const { return !parts.empty(); }
    bool is_cross() const { return is_derived() && !trees; }
    // Whether a row has a list of weighted features in this field instead of one feature.
    bool is_list() const { return list || transform.kind == Transform::Kind::interpolate || transform.kind == Transform::Kind::linear; }
    std::int32_t hashed(std::string_view token) const { return static_cast<std::int32_t>(hash_bytes(token) >> (64 - hash_bits)); }
};

// Reads cells, and replaces the texts that the schema declares as missing with empty ones.
class CellReader {
public:
    explicit CellReader(std::vector<std::string> missing) : missing_(std::move(missing)) {}
    void read(const Column& column, std::size_t first, std::size_t count, Batch& batch) const;
    std::string_view read(std::string_view cell) const;

    // Reads one cell of a multi-valued field: the tokens of its values, and their weights after pooling. A missing cell has one value, the
    // empty text. `weights` is the column of weights, if there is one.
    void read(const Column& column, const Column* weights, std::size_t row, const ListFormat& format, ListCell& cell) const;
    void read(std::string_view text, std::optional<std::string_view> weights, const ListFormat& format, ListCell& cell) const;
    // The same for values that have already been split, and their weights before pooling.
    void finish(const ListFormat& format, ListCell& cell) const;

private:
    void read(const Column& column, std::size_t row, const ListFormat& format, ListCell& cell) const;

    std::vector<std::string> missing_;
};

// Calls body(first, count) for the rows [0, rows), one batch at a time.
template <class Body>
void by_batch(std::size_t rows, Body body) {
    for (std::size_t first = 0; first < rows; first += Batch::capacity) body(first, std::min(Batch::capacity, rows - first));
}

}  // namespace fm2
