#include "fm2/arrow.h"

#include <cstring>
#include <stdexcept>

namespace fm2 {
namespace {

// The offset and validity bitmap that all Arrow columns share.
class ArrowColumn : public Column {
protected:
    explicit ArrowColumn(const ArrowArray& array)
        : offset_(static_cast<std::size_t>(array.offset)),
          valid_(array.null_count ? static_cast<const std::uint8_t*>(array.buffers[0]) : nullptr) {}

    bool missing(std::size_t i) const { return valid_ && !(valid_[i / 8] >> (i % 8) & 1); }

    template <class Cell>
    void fill(std::size_t first, std::size_t count, Batch& batch, Cell cell) const {
        batch.size = count;
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t at = offset_ + first + i;
            batch.cells[i] = missing(at) ? std::string_view() : cell(at, batch.buffers[i]);
        }
    }

    std::size_t offset_;
    const std::uint8_t* valid_;
};

template <class Number>
class NumberColumn : public ArrowColumn {
public:
    explicit NumberColumn(const ArrowArray& array) : ArrowColumn(array), values_(static_cast<const Number*>(array.buffers[1])) {}
    void read(std::size_t first, std::size_t count, Batch& batch) const override {
        fill(first, count, batch, [this](std::size_t at, TextBuffer& buffer) { return format_number(values_[at], buffer); });
    }

private:
    const Number* values_;
};

class BoolColumn : public ArrowColumn {
public:
    explicit BoolColumn(const ArrowArray& array) : ArrowColumn(array), bits_(static_cast<const std::uint8_t*>(array.buffers[1])) {}
    void read(std::size_t first, std::size_t count, Batch& batch) const override {
        fill(first, count, batch, [this](std::size_t at, TextBuffer&) { return format_bool(bits_[at / 8] >> (at % 8) & 1); });
    }

private:
    const std::uint8_t* bits_;
};

// Dates, and times in units of a second or less.
template <class Number>
class TimeColumn : public ArrowColumn {
public:
    TimeColumn(const ArrowArray& array, std::int64_t units_per_second, std::int64_t seconds_per_unit)
        : ArrowColumn(array),
          values_(static_cast<const Number*>(array.buffers[1])),
          units_per_second_(units_per_second),
          seconds_per_unit_(seconds_per_unit) {}
    void read(std::size_t first, std::size_t count, Batch& batch) const override {
        fill(first, count, batch, [this](std::size_t at, TextBuffer& buffer) {
            const std::int64_t value = values_[at];
            const std::int64_t rounded_down = value / units_per_second_ - (value % units_per_second_ < 0);
            return format_time(rounded_down * seconds_per_unit_, buffer);
        });
    }

private:
    const Number* values_;
    std::int64_t units_per_second_, seconds_per_unit_;
};

template <class Offset>
class TextColumn : public ArrowColumn {
public:
    explicit TextColumn(const ArrowArray& array)
        : ArrowColumn(array), ends_(static_cast<const Offset*>(array.buffers[1])), bytes_(static_cast<const char*>(array.buffers[2])) {}
    void read(std::size_t first, std::size_t count, Batch& batch) const override {
        fill(first, count, batch, [this](std::size_t at, TextBuffer&) {
            return std::string_view(bytes_ + ends_[at], static_cast<std::size_t>(ends_[at + 1] - ends_[at]));
        });
    }

private:
    const Offset* ends_;
    const char* bytes_;
};

// String views are 16 bytes; a text of up to 12 bytes is stored in the view itself.
class ViewColumn : public ArrowColumn {
public:
    explicit ViewColumn(const ArrowArray& array)
        : ArrowColumn(array), views_(static_cast<const View*>(array.buffers[1])), buffers_(array.buffers + 2) {}
    void read(std::size_t first, std::size_t count, Batch& batch) const override {
        fill(first, count, batch, [this](std::size_t at, TextBuffer&) {
            const View& view = views_[at];
            const auto size = static_cast<std::size_t>(view.size);
            if (size <= 12) return std::string_view(view.inlined, size);
            std::int32_t buffer, begin;
            std::memcpy(&buffer, view.inlined + 4, 4);
            std::memcpy(&begin, view.inlined + 8, 4);
            return std::string_view(static_cast<const char*>(buffers_[buffer]) + begin, size);
        });
    }

private:
    struct View {
        std::int32_t size;
        char inlined[12];
    };
    const View* views_;
    const void* const* buffers_;
};

class NullColumn : public Column {
public:
    void read(std::size_t, std::size_t count, Batch& batch) const override {
        batch.size = count;
        for (std::size_t i = 0; i < count; ++i) batch.cells[i] = {};
    }
};

// Categories: integer keys into a column of values.
template <class Number>
class DictionaryColumn : public ArrowColumn {
public:
    DictionaryColumn(const ArrowArray& array, std::unique_ptr<Column> values)
        : ArrowColumn(array), keys_(static_cast<const Number*>(array.buffers[1])), values_(std::move(values)) {}
    void read(std::size_t first, std::size_t count, Batch& batch) const override {
        Batch value;
        fill(first, count, batch, [&](std::size_t at, TextBuffer& buffer) {
            values_->read(static_cast<std::size_t>(keys_[at]), 1, value);
            const std::string_view text = value.cells[0];
            if (text.data() != value.buffers[0].data()) return text;
            buffer = value.buffers[0];  // the next read reuses the value's buffer
            return std::string_view(buffer.data(), text.size());
        });
    }

private:
    const Number* keys_;
    std::unique_ptr<Column> values_;
};

// Makes a column of the integer type that an Arrow format character names, or null for other characters.
template <template <class> class Kind, class... Arguments>
std::unique_ptr<Column> by_integer(char format, const ArrowArray& array, Arguments... arguments) {
    switch (format) {
        case 'c': return std::make_unique<Kind<std::int8_t>>(array, std::move(arguments)...);
        case 'C': return std::make_unique<Kind<std::uint8_t>>(array, std::move(arguments)...);
        case 's': return std::make_unique<Kind<std::int16_t>>(array, std::move(arguments)...);
        case 'S': return std::make_unique<Kind<std::uint16_t>>(array, std::move(arguments)...);
        case 'i': return std::make_unique<Kind<std::int32_t>>(array, std::move(arguments)...);
        case 'I': return std::make_unique<Kind<std::uint32_t>>(array, std::move(arguments)...);
        case 'l': return std::make_unique<Kind<std::int64_t>>(array, std::move(arguments)...);
        case 'L': return std::make_unique<Kind<std::uint64_t>>(array, std::move(arguments)...);
        default: return nullptr;
    }
}

std::unique_ptr<Column> make_column(const ArrowSchema& schema, const ArrowArray& array) {
    const std::string_view format = schema.format;
    if (schema.dictionary && format.size() == 1)
        if (auto column = by_integer<DictionaryColumn>(format[0], array, make_column(*schema.dictionary, *array.dictionary))) return column;
    if (format.size() == 1) {
        if (auto column = by_integer<NumberColumn>(format[0], array)) return column;
        switch (format[0]) {
            case 'f': return std::make_unique<NumberColumn<float>>(array);
            case 'g': return std::make_unique<NumberColumn<double>>(array);
            case 'b': return std::make_unique<BoolColumn>(array);
            case 'u':
            case 'z': return std::make_unique<TextColumn<std::int32_t>>(array);
            case 'U':
            case 'Z': return std::make_unique<TextColumn<std::int64_t>>(array);
            case 'n': return std::make_unique<NullColumn>();
        }
    }
    if (format == "vu" || format == "vz") return std::make_unique<ViewColumn>(array);
    if (format == "tdD") return std::make_unique<TimeColumn<std::int32_t>>(array, 1, 86400);
    if (format == "tdm") return std::make_unique<TimeColumn<std::int64_t>>(array, 1000, 1);
    if (format.starts_with("tss")) return std::make_unique<TimeColumn<std::int64_t>>(array, 1, 1);
    if (format.starts_with("tsm")) return std::make_unique<TimeColumn<std::int64_t>>(array, 1000, 1);
    if (format.starts_with("tsu")) return std::make_unique<TimeColumn<std::int64_t>>(array, 1000000, 1);
    if (format.starts_with("tsn")) return std::make_unique<TimeColumn<std::int64_t>>(array, 1000000000, 1);
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
