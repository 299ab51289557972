#include "fm2/transform.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

namespace fm2 {

std::optional<double> parse_number(std::string_view text) {
    if (!text.empty() && text[0] == '+') text.remove_prefix(1);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
    return value;
}

std::int64_t log_square(double x) {
    x = std::floor(std::max(x, -9e18));
    if (x <= 2) return static_cast<std::int64_t>(x);
    const double ln = std::log(x);
    return static_cast<std::int64_t>(std::ceil(ln * ln + 1));
}

std::size_t bucket(float value, const std::vector<float>& boundaries) {
    return static_cast<std::size_t>(std::upper_bound(boundaries.begin(), boundaries.end(), value) - boundaries.begin());
}

std::optional<std::int64_t> Transform::token(std::string_view cell) const {
    switch (kind) {
        case Kind::log_square:
            if (const auto value = parse_number(cell)) return log_square(*value);
            return std::nullopt;
        case Kind::quantiles:
            if (const auto value = parse_number(cell)) return static_cast<std::int64_t>(bucket(static_cast<float>(*value), boundaries));
            return std::nullopt;
        case Kind::weekday:
        case Kind::hour:
            if (const auto seconds = time->parse(cell)) return kind == Kind::weekday ? weekday(*seconds) : hour(*seconds);
            return std::nullopt;
        case Kind::interpolate:
        case Kind::linear:
        case Kind::none: break;
    }
    return std::nullopt;
}

void Transform::apply(Batch& batch, std::vector<std::size_t>& bad) const {
    for (std::size_t i = 0; i < batch.size; ++i) {
        std::string_view& cell = batch.cells[i];
        if (kind == Kind::none) {
            cell = normalize_spelling(cell);
        } else if (!cell.empty()) {
            if (const auto number = token(cell)) cell = format_number(*number, batch.buffers[i]);
            else bad.push_back(i);
        }
    }
}

Fault Transform::fault() const { return time ? Fault::time : Fault::number; }

void CellReader::read(const Column& column, std::size_t first, std::size_t count, Batch& batch) const {
    column.read(first, count, batch);
    for (std::size_t i = 0; i < count; ++i) batch.cells[i] = read(batch.cells[i]);
}

std::string_view CellReader::read(std::string_view cell) const {
    return std::ranges::find(missing_, cell) == missing_.end() ? cell : std::string_view();
}

void CellReader::read(const Column& column, std::size_t row, const ListFormat& format, ListCell& cell) const {
    static thread_local Batch batch;
    if (column.read_list(row, format, cell)) return;
    column.read(row, 1, batch);
    split_cell(read(batch.cells[0]), format, cell);
}

void CellReader::read(const Column& column, const Column* weights, std::size_t row, const ListFormat& format, ListCell& cell) const {
    static thread_local ListCell weight_cell;
    read(column, row, format, cell);
    if (weights) {
        read(*weights, row, format, weight_cell);
        set_weights(weight_cell, cell);
    }
    finish(format, cell);
}

void CellReader::read(std::string_view text, std::optional<std::string_view> weights, const ListFormat& format, ListCell& cell) const {
    static thread_local ListCell weight_cell;
    split_cell(read(text), format, cell);
    if (weights) {
        split_cell(read(*weights), format, weight_cell);
        set_weights(weight_cell, cell);
    }
    finish(format, cell);
}

void CellReader::finish(const ListFormat& format, ListCell& cell) const {
    cell.missing |= format.empty_is_missing && cell.values.empty();
    if (cell.missing) cell.values.assign(1, {});
    for (std::string_view& value : cell.values) value = normalize_spelling(read(value));
    if (cell.missing || cell.weights.empty()) cell.weights.assign(cell.values.size(), 1.0f);
    if (!cell.missing) pool_weights(format.pooling, cell.weights);
}

bool is_utf8(std::string_view text) {
    const auto at = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
    const auto follows = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) { return at(i) >= low && at(i) <= high; };
    for (std::size_t i = 0; i < text.size();) {
        const unsigned c = at(i);
        if (c < 0x80) {
            i += 1;
            for (std::uint64_t word; i + sizeof word <= text.size(); i += sizeof word) {  // most texts are ASCII
                std::memcpy(&word, text.data() + i, sizeof word);
                if (word & 0x8080808080808080) break;
            }
        } else if (c >= 0xC2 && c <= 0xDF && follows(i + 1)) {
            i += 2;
        } else if ((c & 0xF0) == 0xE0 && follows(i + 1, c == 0xE0 ? 0xA0 : 0x80, c == 0xED ? 0x9F : 0xBF) && follows(i + 2)) {
            i += 3;
        } else if (c >= 0xF0 && c <= 0xF4 && follows(i + 1, c == 0xF0 ? 0x90 : 0x80, c == 0xF4 ? 0x8F : 0xBF) && follows(i + 2) &&
                   follows(i + 3)) {
            i += 4;
        } else {
            return false;
        }
    }
    return true;
}

}  // namespace fm2
