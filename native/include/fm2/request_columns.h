// The columns of a model as requests name them, and what values they may have.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/cell_table.h"
#include "fm2/string_index.h"

namespace fm2 {

class RequestColumns {
public:
    static constexpr std::size_t unknown = ~std::size_t{0};

    explicit RequestColumns(const FileEncoder& encoder);

    std::size_t size() const { return names_.size(); }
    std::span<const std::string> names() const { return names_; }
    const std::string& name(std::size_t column) const { return names_[column]; }
    bool accepts_lists(std::size_t column) const { return kinds_[column].lists; }
    bool accepts_weights(std::size_t column) const { return kinds_[column].weights; }

    // Finds a column, or `unknown`. Requests repeat an order of columns, so the one that followed `last` before is tried first; `last` is
    // size() at the start of a row.
    std::size_t find(std::string_view name, std::size_t last) const {
        const std::size_t expected = next_[last].load(std::memory_order_relaxed);
        return name == names_[expected] ? expected : search(name, last);
    }
    [[noreturn]] void refuse_unknown(std::string_view name) const;

private:
    struct Kind {
        bool lists, weights;  // whether a value may be a list, or an object of weights
    };

    std::size_t search(std::string_view name, std::size_t last) const;

    std::vector<std::string> names_;
    std::vector<Kind> kinds_;
    StringIndex index_;
    std::unique_ptr<std::atomic<std::uint32_t>[]> next_;  // by column: the one that followed it in a request
};

// How much one request may contain.
struct RequestLimits {
    std::size_t rows, values;
};

// Reads JSON values into the cells of a table. All functions throw RequestError.
class ValueReader {
public:
    ValueReader(JsonReader& json, const RequestColumns& columns, const RequestLimits& limits, CellTable& table)
        : json_(json), columns_(columns), limits_(limits), table_(table) {}

    // `what` describes the array in messages.
    void rows(const char* what);  // [{column: value, ...}, ...]; a column that is not in an object is missing
    void columns();  // {column: [value, ...], ...}
    void table(const char* what);  // rows, or {"columns": columns}
    // Reads an object of values into table.cells, which gets a cell per column; `what` describes it in messages.
    void row(const char* what);
    std::string_view scalar();  // the text of a string, number, boolean or null
    void count_values(std::size_t count);  // towards the limit

private:
    Cell cell(std::size_t column);
    std::int32_t list(std::size_t column);
    std::int32_t weights(std::size_t column);
    void check_keys(std::size_t first) const;

    JsonReader& json_;
    const RequestColumns& columns_;
    const RequestLimits& limits_;
    CellTable& table_;
    std::size_t values_ = 0;
};

// Throws RequestError unless the table has each column.
void check_columns(const RequestColumns& columns, const CellTable& table);
std::string_view number_text(const JsonNumber& number, TextArena& arena);
void check_rows(std::size_t rows, const RequestLimits& limits);

}  // namespace fm2
