#include "fm2/arrow.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

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

std::unique_ptr<Column> make_column(const ArrowSchema& schema, const ArrowArray& array) {
    const std::string_view format = schema.format;
    if (schema.dictionary && format.size() == 1) {
        const std::shared_ptr<const Column> values = make_column(*schema.dictionary, *array.dictionary);
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
    throw std::invalid_argument("column '" + std::string(schema.name ? schema.name : "") + "' has the unsupported Arrow type '" +
                                std::string(format) + "'; convert it to text, numbers or times");
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
    ArrowArray child = *array_.children[index];
    child.offset += array_.offset;
    return make_column(*schema_.children[index], child);
}

void ArrowReader::fail(const char* operation) {
    const char* reason = stream_.get_last_error ? stream_.get_last_error(&stream_) : nullptr;
    throw std::runtime_error(std::string(operation) + ": " + (reason ? reason : "unknown error"));
}

}  // namespace fm2
