#include "fm2/arrow.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <stdexcept>

#include "fm2/list_cell.h"

namespace fm2 {
namespace {

// A column with Arrow's offset and validity bitmap. cell(at, buffer) returns the text of the value at an index.
template <class Cell>
class ArrowColumn : public Column {
public:
    ArrowColumn(const ArrowArray& array, Cell cell)
        : offset_(static_cast<std::size_t>(array.offset)),
          valid_(array.null_count ? static_cast<const std::uint8_t*>(array.buffers[0]) : nullptr),
          cell_(std::move(cell)) {}

    void read(std::size_t first, std::size_t count, Batch& batch) const override {
        batch.size = count;
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t at = offset_ + first + i;
            const bool missing = valid_ && !(valid_[at / 8] >> (at % 8) & 1);
            batch.cells[i] = missing ? std::string_view() : cell_(at, batch.buffers[i]);
        }
    }

private:
    std::size_t offset_;
    const std::uint8_t* valid_;
    Cell cell_;
};

template <class Cell>
std::unique_ptr<Column> column_of(const ArrowArray& array, Cell cell) {
    return std::make_unique<ArrowColumn<Cell>>(array, std::move(cell));
}

template <class T>
const T* values_of(const ArrowArray& array) {
    return static_cast<const T*>(array.buffers[1]);
}

template <class Number>
std::unique_ptr<Column> number_column(const ArrowArray& array) {
    return column_of(array,
                     [values = values_of<Number>(array)](std::size_t at, TextBuffer& buffer) { return format_number(values[at], buffer); });
}

std::unique_ptr<Column> bool_column(const ArrowArray& array) {
    return column_of(
        array, [bits = values_of<std::uint8_t>(array)](std::size_t at, TextBuffer&) { return format_bool(bits[at / 8] >> (at % 8) & 1); });
}

// Dates, and times in units of a second or less.
template <class Number>
std::unique_ptr<Column> time_column(const ArrowArray& array, std::int64_t units_per_second, std::int64_t seconds_per_unit) {
    return column_of(array, [=, values = values_of<Number>(array)](std::size_t at, TextBuffer& buffer) {
        const std::int64_t value = values[at];
        const std::int64_t rounded_down = value / units_per_second - (value % units_per_second < 0);
        return format_time(rounded_down * seconds_per_unit, buffer);
    });
}

template <class Offset>
std::unique_ptr<Column> text_column(const ArrowArray& array) {
    return column_of(array,
                     [ends = values_of<Offset>(array), bytes = static_cast<const char*>(array.buffers[2])](std::size_t at, TextBuffer&) {
                         return std::string_view(bytes + ends[at], static_cast<std::size_t>(ends[at + 1] - ends[at]));
                     });
}

// String views are 16 bytes; a text of up to 12 bytes is stored in the view itself.
std::unique_ptr<Column> view_column(const ArrowArray& array) {
    struct View {
        std::int32_t size;
        char inlined[12];
    };
    return column_of(array, [views = values_of<View>(array), buffers = array.buffers + 2](std::size_t at, TextBuffer&) {
        const View& view = views[at];
        const auto size = static_cast<std::size_t>(view.size);
        if (size <= 12) return std::string_view(view.inlined, size);
        std::int32_t buffer, begin;
        std::memcpy(&buffer, view.inlined + 4, 4);
        std::memcpy(&begin, view.inlined + 8, 4);
        return std::string_view(static_cast<const char*>(buffers[buffer]) + begin, size);
    });
}

class NullColumn : public Column {
public:
    void read(std::size_t, std::size_t count, Batch& batch) const override {
        batch.size = count;
        std::fill_n(batch.cells.begin(), count, std::string_view());
    }
};

// Categories: integer keys into a column of values.
template <class Number>
std::unique_ptr<Column> dictionary_column(const ArrowArray& array, const std::shared_ptr<const Column>& dictionary) {
    return column_of(array, [keys = values_of<Number>(array), dictionary](std::size_t at, TextBuffer& buffer) {
        static thread_local Batch value;
        dictionary->read(static_cast<std::size_t>(keys[at]), 1, value);
        const std::string_view text = value.cells[0];
        if (text.data() != value.buffers[0].data()) return text;
        buffer = value.buffers[0];  // the next read reuses the value's buffer
        return std::string_view(buffer.data(), text.size());
    });
}

// Calls make(number) with the integer type that an Arrow format character names; returns null for other characters.
template <class Make>
std::unique_ptr<Column> by_integer(char format, const Make& make) {
    switch (format) {
        case 'c': return make(std::int8_t());
        case 'C': return make(std::uint8_t());
        case 's': return make(std::int16_t());
        case 'S': return make(std::uint16_t());
        case 'i': return make(std::int32_t());
        case 'I': return make(std::uint32_t());
        case 'l': return make(std::int64_t());
        case 'L': return make(std::uint64_t());
        default: return nullptr;
    }
}

bool is_valid(const std::uint8_t* bitmap, std::size_t at) { return !bitmap || bitmap[at / 8] >> (at % 8) & 1; }

const std::uint8_t* bitmap_of(const ArrowArray& array) {
    return array.null_count && array.n_buffers ? static_cast<const std::uint8_t*>(array.buffers[0]) : nullptr;
}

// Where the values of a list are.
using Range = std::pair<std::size_t, std::size_t>;

template <class Offset>
auto list_ranges(const ArrowArray& array) {
    return [offsets = values_of<Offset>(array)](std::size_t at) {
        return Range(static_cast<std::size_t>(offsets[at]), static_cast<std::size_t>(offsets[at + 1]));
    };
}

template <class Offset>
auto view_ranges(const ArrowArray& array) {
    return [offsets = values_of<Offset>(array), sizes = static_cast<const Offset*>(array.buffers[2])](std::size_t at) {
        const auto begin = static_cast<std::size_t>(offsets[at]);
        return Range(begin, begin + static_cast<std::size_t>(sizes[at]));
    };
}

// Lists of values, or of pairs of a value and a weight (structs, maps).
template <class Ranges>
class ArrowLists : public Column {
public:
    ArrowLists(const ArrowArray& array, std::string name, Ranges ranges, std::unique_ptr<Column> values, std::unique_ptr<Column> weights)
        : offset_(static_cast<std::size_t>(array.offset)),
          valid_(bitmap_of(array)),
          pair_offset_(static_cast<std::size_t>(array.children[0]->offset)),
          pair_valid_(weights ? bitmap_of(*array.children[0]) : nullptr),
          name_(std::move(name)),
          ranges_(std::move(ranges)),
          values_(std::move(values)),
          weights_(std::move(weights)) {}

    void read(std::size_t, std::size_t, Batch&) const override {
        throw std::invalid_argument("column '" + name_ + "' contains lists; set multivalued = true for its field");
    }

    bool read_list(std::size_t row, const ListFormat& format, ListCell& cell) const override {
        if (weights_ && !format.weights_in_cell())
            throw std::invalid_argument("column '" + name_ + "' contains values with weights; set weighted = true for its field");
        cell.clear();
        cell.missing = !is_valid(valid_, offset_ + row);
        if (cell.missing) return true;
        const auto [begin, end] = ranges_(offset_ + row);
        const auto [first, last] = cell.keep(end - begin, format);
        static thread_local Batch values, weights;
        for (std::size_t at = begin + first, stop = begin + last; at < stop; at += Batch::capacity) {
            const std::size_t count = std::min(Batch::capacity, stop - at);
            values_->read(at, count, values);
            if (weights_) weights_->read(at, count, weights);
            for (std::size_t i = 0; i < count; ++i) {
                const bool valid = is_valid(pair_valid_, pair_offset_ + at + i);
                const std::string_view item = valid ? values.cells[i] : std::string_view();
                cell.copy(weights_ || !format.weights_in_cell() ? item : cell.add_weight_of(item));
                if (weights_ && valid) cell.add_weight(item, weights.cells[i]);
                else if (weights_) cell.weights.push_back(1);
            }
        }
        cell.use_copies();
        return true;
    }

private:
    std::size_t offset_;
    const std::uint8_t* valid_;
    std::size_t pair_offset_;
    const std::uint8_t* pair_valid_;
    std::string name_;
    Ranges ranges_;
    std::unique_ptr<Column> values_, weights_;
};

[[noreturn]] void reject(const std::string& name, std::string_view problem) {
    throw std::invalid_argument("column '" + name + "' " + std::string(problem));
}

std::unique_ptr<Column> make_column(const ArrowSchema& schema, const ArrowArray& array, const std::string& name);

// A child of a struct; the struct's offset applies to it as well.
std::unique_ptr<Column> make_part(const ArrowSchema& schema, const ArrowArray& array, std::int64_t index, const std::string& name) {
    ArrowArray part = *array.children[index];
    part.offset += array.offset;
    return make_column(*schema.children[index], part, name);
}

template <class Ranges>
std::unique_ptr<Column> make_lists(const ArrowSchema& schema, const ArrowArray& array, const std::string& name, Ranges ranges) {
    const ArrowSchema& items = *schema.children[0];
    const ArrowArray& values = *array.children[0];
    const auto make = [&](std::unique_ptr<Column> texts, std::unique_ptr<Column> weights) {
        return std::make_unique<ArrowLists<Ranges>>(array, name, std::move(ranges), std::move(texts), std::move(weights));
    };
    const std::string_view format = items.format;
    if (format.starts_with("+l") || format.starts_with("+L") || format.starts_with("+w") || format.starts_with("+v") || format == "+m")
        reject(name, "contains nested lists; a cell must be a list of values");
    if (format != "+s") return make(make_column(items, values, name), nullptr);
    if (items.n_children != 2) reject(name, "contains lists of structs; expected structs of a value and its weight");
    const bool weight_first = std::string_view(items.children[0]->name ? items.children[0]->name : "") == "weight";
    return make(make_part(items, values, weight_first, name), make_part(items, values, !weight_first, name));
}

// Lists of any kind; null if the type is not a list.
std::unique_ptr<Column> make_lists(const ArrowSchema& schema, const ArrowArray& array, const std::string& name) {
    const std::string_view format = schema.format;
    if (format == "+l" || format == "+m") return make_lists(schema, array, name, list_ranges<std::int32_t>(array));
    if (format == "+L") return make_lists(schema, array, name, list_ranges<std::int64_t>(array));
    if (format == "+vl") return make_lists(schema, array, name, view_ranges<std::int32_t>(array));
    if (format == "+vL") return make_lists(schema, array, name, view_ranges<std::int64_t>(array));
    if (!format.starts_with("+w:")) return nullptr;
    std::size_t size = 0;
    std::from_chars(format.data() + 3, format.data() + format.size(), size);
    return make_lists(schema, array, name, [size](std::size_t at) { return Range(at * size, (at + 1) * size); });
}

std::unique_ptr<Column> make_column(const ArrowSchema& schema, const ArrowArray& array, const std::string& name) {
    const std::string_view format = schema.format;
    if (auto lists = make_lists(schema, array, name)) return lists;
    if (schema.dictionary && format.size() == 1) {
        const std::shared_ptr<const Column> values = make_column(*schema.dictionary, *array.dictionary, name);
        if (auto column = by_integer(format[0], [&]<class T>(T) { return dictionary_column<T>(array, values); })) return column;
    }
    if (format.size() == 1) {
        if (auto column = by_integer(format[0], [&]<class T>(T) { return number_column<T>(array); })) return column;
        switch (format[0]) {
            case 'f': return number_column<float>(array);
            case 'g': return number_column<double>(array);
            case 'b': return bool_column(array);
            case 'u':
            case 'z': return text_column<std::int32_t>(array);
            case 'U':
            case 'Z': return text_column<std::int64_t>(array);
            case 'n': return std::make_unique<NullColumn>();
        }
    }
    if (format == "vu" || format == "vz") return view_column(array);
    if (format == "tdD") return time_column<std::int32_t>(array, 1, 86400);
    if (format == "tdm") return time_column<std::int64_t>(array, 1000, 1);
    if (format.starts_with("tss")) return time_column<std::int64_t>(array, 1, 1);
    if (format.starts_with("tsm")) return time_column<std::int64_t>(array, 1000, 1);
    if (format.starts_with("tsu")) return time_column<std::int64_t>(array, 1000000, 1);
    if (format.starts_with("tsn")) return time_column<std::int64_t>(array, 1000000000, 1);
    reject(name, "has the unsupported Arrow type '" + std::string(format) + "'; convert it to text, numbers or times");
}

}  // namespace

ArrowReader::ArrowReader(ArrowArrayStream* stream) {
    static_cast<ArrowArrayStream&>(stream_) = *stream;
    stream->release = nullptr;  // marks the stream as moved
    if (stream_.get_schema(&stream_, &schema_) != 0) fail("reading the schema");
    if (std::string_view(schema_.format) != "+s") throw std::invalid_argument("expected a stream of record batches");
    for (std::int64_t i = 0; i < schema_.n_children; ++i) names_.emplace_back(schema_.children[i]->name);
}

bool ArrowReader::next() {
    array_.clear();
    if (stream_.get_next(&stream_, &array_) != 0) fail("reading rows");
    return array_.release != nullptr;
}

std::size_t ArrowReader::rows() const { return array_.release ? static_cast<std::size_t>(array_.length) : 0; }

std::unique_ptr<Column> ArrowReader::column(std::size_t index) const {
    if (index == no_column) return std::make_unique<NullColumn>();
    ArrowArray child = *array_.children[index];
    child.offset += array_.offset;
    return make_column(*schema_.children[index], child, names_[index]);
}

void ArrowReader::fail(const char* operation) {
    const char* reason = stream_.get_last_error ? stream_.get_last_error(&stream_) : nullptr;
    throw std::runtime_error(std::string(operation) + ": " + (reason ? reason : "unknown error"));
}

}  // namespace fm2
