#include "fm2/request_columns.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fm2 {

RequestColumns::RequestColumns(const FileEncoder& encoder)
    : names_(encoder.columns()),
      kinds_(names_.size(), {true, true}),
      next_(std::make_unique<std::atomic<std::uint32_t>[]>(names_.size() + 1)) {
    for (const std::string& name : names_) index_.add(name);
    for (std::size_t c = 0; c <= names_.size(); ++c) next_[c] = static_cast<std::uint32_t>(c + 1 < names_.size() ? c + 1 : 0);
    for (std::size_t f = 0; f < encoder.encoder().fields(); ++f) {
        const Field& field = encoder.encoder().field(f);
        if (field.is_derived()) continue;
        Kind& kind = kinds_[field.column];
        kind = {kind.lists && field.list, kind.weights && field.list && field.list->weights_in_cell()};
        if (field.list && field.list->weight_column) kinds_[*field.list->weight_column].weights = false;
    }
}

std::size_t RequestColumns::search(std::string_view name, std::size_t last) const {
    const std::int32_t found = index_.find(name);
    if (found == StringIndex::absent) return unknown;
    next_[last].store(static_cast<std::uint32_t>(found), std::memory_order_relaxed);
    return static_cast<std::size_t>(found);
}

void RequestColumns::refuse_unknown(std::string_view name) const {
    throw RequestError(bad_request, reason::column, "unknown column " + quoted(name) + "; " + suggest(name, names_), excerpt(name));
}

void check_rows(std::size_t rows, const RequestLimits& limits) {
    if (rows > limits.rows)
        throw RequestError(too_large, reason::rows, "a request may have " + std::to_string(limits.rows) + " rows; send several");
}

std::string_view number_text(const JsonNumber& number, TextArena& arena) {
    if (number.is_integer) return number.text == "-0" ? number.text.substr(1) : number.text;
    const double value = number.value();
    if (!std::isfinite(value)) refuse(reason::value, "the number ", excerpt(number.text), " is too large");
    TextBuffer buffer;
    const std::string_view text = format_number(value, buffer);
    return {std::copy_n(text.data(), text.size(), arena.take(text.size())) - text.size(), text.size()};
}

void ValueReader::count_values(std::size_t count) {
    values_ += count;
    if (values_ > limits_.values)
        throw RequestError(too_large, reason::values, "a request may have " + std::to_string(limits_.values) + " values; send several");
}

std::string_view ValueReader::scalar() {
    switch (json_.peek()) {
        case '"': return json_.string();
        case 't':
        case 'f': return format_bool(json_.boolean());
        case 'n': json_.null(); return {};
        case '[':
        case '{': refuse(reason::value, "a value is nested; a list must contain texts, numbers or booleans");
        default:
            if (!json_.kind()) json_.fail("expected a value");
            return number_text(json_.number(), table_.arena);
    }
}

Cell ValueReader::cell(std::size_t column) {
    const char first = json_.peek();
    if (first == '[') return {{}, list(column)};
    if (first == '{') return {{}, weights(column)};
    count_values(1);
    return {scalar(), Cell::no_list};
}

std::int32_t ValueReader::list(std::size_t column) {
    if (!columns_.accepts_lists(column)) refuse(reason::value, "the value is a list; only multi-valued fields may have several values");
    count_values(json_.array([&](std::size_t) { table_.items.push_back(scalar()); }));
    return table_.finish_list(false);
}

std::int32_t ValueReader::weights(std::size_t column) {
    if (!columns_.accepts_weights(column))
        refuse(reason::value, "the value is an object; only fields with weighted = true may have weights by value");
    const std::size_t first = table_.items.size();
    json_.object([&](std::string_view key) {
        table_.items.push_back(key);
        table_.items.push_back(scalar());
    });
    count_values((table_.items.size() - first) / 2);
    check_keys(first);
    return table_.finish_list(true);
}

// Checks that the values of an object of weights differ.
void ValueReader::check_keys(std::size_t first) const {
    static thread_local std::vector<std::string_view> keys;
    keys.clear();
    for (std::size_t i = first; i < table_.items.size(); i += 2) keys.push_back(table_.items[i]);
    std::ranges::sort(keys);
    const auto repeated = std::ranges::adjacent_find(keys);
    if (repeated != keys.end()) refuse(reason::value, "the value ", quoted(*repeated), " occurs twice");
}

void ValueReader::row(const char* what) {
    const std::size_t first = table_.cells.size();
    table_.cells.resize(first + columns_.size());
    std::size_t last = columns_.size();
    json_.object([&](std::string_view key) {
        const std::size_t column = columns_.find(key, last);
        if (column == RequestColumns::unknown) columns_.refuse_unknown(key);
        last = column;
        Cell& cell = table_.cells[first + column];
        try {
            if (cell.list != Cell::absent) refuse(reason::column, "the column occurs twice");
            cell = this->cell(column);
        } catch (RequestError& error) {
            error.in_column(columns_.name(column));
            throw;
        }
    });
    if (last == columns_.size())
        refuse(reason::column, what, " has none of the model's columns: ", columns_.name(0), columns_.size() > 1 ? ", ..." : "");
}

void ValueReader::rows(const char* what) {
    const std::size_t first = table_.cells.size();
    table_.rows = json_.array([&](std::size_t index) {
        check_rows(index + 1, limits_);
        try {
            row("the object");
        } catch (RequestError& error) {
            error.prefix(what + ("[" + std::to_string(index) + "]"));
            throw;
        }
    });
    for (std::size_t c = 0; c < columns_.size(); ++c) table_.place(c, first + c, columns_.size());
}

void ValueReader::columns() {
    std::size_t last = columns_.size();
    json_.object([&](std::string_view key) {
        const std::size_t column = columns_.find(key, last), first = table_.cells.size();
        if (column == RequestColumns::unknown) columns_.refuse_unknown(key);
        std::size_t index = 0;
        bool in_cell = false;
        try {
            if (table_.has(column)) refuse(reason::column, "the column occurs twice");
            const std::size_t count = json_.array([&](std::size_t row) {
                check_rows(row + 1, limits_);
                index = row;
                in_cell = true;
                table_.cells.push_back(cell(column));
                in_cell = false;
            });
            if (last == columns_.size()) table_.rows = count;
            else if (count != table_.rows)
                refuse(reason::column, "expected ", table_.rows, " values like in the first column, got ", count);
        } catch (RequestError& error) {
            if (in_cell) error.prefix("row " + std::to_string(index));
            error.in_column(columns_.name(column));
            throw;
        }
        table_.place(column, first, 1);
        last = column;
    });
}

void ValueReader::table(const char* what) {
    if (json_.peek() != '{') return rows(what);
    bool has_columns = false;
    try {
        json_.object([&](std::string_view key) {
            if (key != "columns") refuse(reason::request, "expected an array of objects, or an object with 'columns', got ", quoted(key));
            if (std::exchange(has_columns, true)) refuse(reason::request, "'columns' occurs twice");
            columns();
        });
        if (!has_columns) refuse(reason::request, "expected an array of objects, or an object with 'columns'");
    } catch (RequestError& error) {
        error.prefix(what);
        throw;
    }
}

void check_columns(const RequestColumns& columns, const CellTable& table) {
    for (std::size_t c = 0; c < columns.size(); ++c)
        if (!table.has(c))
            throw RequestError(bad_request, reason::column, "column '" + columns.name(c) + "' is absent; missing values are null",
                               columns.name(c));
}

}  // namespace fm2
