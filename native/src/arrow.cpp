#include "fm2/arrow.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <type_traits>

namespace fm2 {
namespace {

// What every Arrow column has: where it begins, and which of its values are there.
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
            batch.cells[i] = missing(at) ? std::string_view() : cell(at, batch.scratch[i].data());
        }
    }

    std::size_t offset_;
    const std::uint8_t* valid_;
};

template <class Number>
std::string_view print(Number value, char* scratch, char* begin = nullptr) {
    if constexpr (std::is_floating_point_v<Number>) {
        if (std::isnan(value)) return {};
        // A whole number reads as it would in a column of integers: 100000, not 1e+05.
        if (std::abs(value) < 9e15 && value == std::floor(value)) return print(static_cast<std::int64_t>(value), scratch);
    }
    char* start = begin ? begin : scratch;
    const char* end = std::to_chars(start, scratch + Batch::scratch_size, value).ptr;
    return {scratch, static_cast<std::size_t>(end - scratch)};
}

template <class Number>
class NumberColumn : public ArrowColumn {
public:
    explicit NumberColumn(const ArrowArray& array)
        : ArrowColumn(array), values_(static_cast<const Number*>(array.buffers[1])) {}
    void read(std::size_t first, std::size_t count, Batch& batch) const override {
        fill(first, count, batch, [this](std::size_t at, char* scratch) { return print(values_[at], scratch); });
    }

private:
    const Number* values_;
};

class BoolColumn : public ArrowColumn {
public:
    explicit BoolColumn(const ArrowArray& array)
        : ArrowColumn(array), bits_(static_cast<const std::uint8_t*>(array.buffers[1])) {}
    void read(std::size_t first, std::size_t count, Batch& batch) const override {
        fill(first, count, batch, [this](std::size_t at, char*) {
            return bits_[at / 8] >> (at % 8) & 1 ? std::string_view("true") : std::string_view("false");
        });
    }

private:
    const std::uint8_t* bits_;
};

// Times and dates are handed out as "@" and the seconds since 1970.
template <class Number>
class TimeColumn : public ArrowColumn {
public:
    TimeColumn(const ArrowArray& array, std::int64_t per_second, std::int64_t seconds)
        : ArrowColumn(array), values_(static_cast<const Number*>(array.buffers[1])), per_second_(per_second), seconds_(seconds) {}
    void read(std::size_t first, std::size_t count, Batch& batch) const override {
        fill(first, count, batch, [this](std::size_t at, char* scratch) {
            const std::int64_t value = values_[at], whole = value / per_second_ - (value % per_second_ < 0);
            scratch[0] = '@';
            return print(whole * seconds_, scratch, scratch + 1);
        });
    }

private:
    const Number* values_;
    std::int64_t per_second_, seconds_;
};

template <class Offset>
class TextColumn : public ArrowColumn {
public:
    explicit TextColumn(const ArrowArray& array)
        : ArrowColumn(array), ends_(static_cast<const Offset*>(array.buffers[1])), bytes_(static_cast<const char*>(array.buffers[2])) {}
    void read(std::size_t first, std::size_t count, Batch& batch) const override {
        fill(first, count, batch, [this](std::size_t at, char*) {
            return std::string_view(bytes_ + ends_[at], static_cast<std::size_t>(ends_[at + 1] - ends_[at]));
        });
    }

private:
    const Offset* ends_;
    const char* bytes_;
};

// Arrow's string views: 16 bytes each, which hold the text itself where it is short.
class ViewColumn : public ArrowColumn {
public:
    explicit ViewColumn(const ArrowArray& array)
        : ArrowColumn(array), views_(static_cast<const View*>(array.buffers[1])), buffers_(array.buffers + 2) {}
    void read(std::size_t first, std::size_t count, Batch& batch) const override {
        fill(first, count, batch, [this](std::size_t at, char*) {
            const View& view = views_[at];
            const auto size = static_cast<std::size_t>(view.size);
            if (size <= 12) return std::string_view(view.rest, size);
            std::int32_t buffer, begin;
            std::memcpy(&buffer, view.rest + 4, 4);
            std::memcpy(&begin, view.rest + 8, 4);
            return std::string_view(static_cast<const char*>(buffers_[buffer]) + begin, size);
        });
    }

private:
    struct View {
        std::int32_t size;
        char rest[12];
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

// Categories: a number a row, into a column of their texts.
template <class Number>
class DictionaryColumn : public ArrowColumn {
public:
    DictionaryColumn(const ArrowArray& array, std::unique_ptr<Column> values)
        : ArrowColumn(array), keys_(static_cast<const Number*>(array.buffers[1])), values_(std::move(values)) {}
    void read(std::size_t first, std::size_t count, Batch& batch) const override {
        Batch one;
        batch.size = count;
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t at = offset_ + first + i;
            batch.cells[i] = {};
            if (missing(at)) continue;
            values_->read(static_cast<std::size_t>(keys_[at]), 1, one);
            batch.cells[i] = one.cells[0];
            if (one.cells[0].data() == one.scratch[0].data()) {  // printed there: take it along
                std::memcpy(batch.scratch[i].data(), one.scratch[0].data(), Batch::scratch_size);
                batch.cells[i] = {batch.scratch[i].data(), one.cells[0].size()};
            }
        }
    }

private:
    const Number* keys_;
    std::unique_ptr<Column> values_;
};

template <template <class> class Kind, class... Rest>
std::unique_ptr<Column> by_integer(char format, const ArrowArray& array, Rest... rest) {
    switch (format) {
        case 'c': return std::make_unique<Kind<std::int8_t>>(array, std::move(rest)...);
        case 'C': return std::make_unique<Kind<std::uint8_t>>(array, std::move(rest)...);
        case 's': return std::make_unique<Kind<std::int16_t>>(array, std::move(rest)...);
        case 'S': return std::make_unique<Kind<std::uint16_t>>(array, std::move(rest)...);
        case 'i': return std::make_unique<Kind<std::int32_t>>(array, std::move(rest)...);
        case 'I': return std::make_unique<Kind<std::uint32_t>>(array, std::move(rest)...);
        case 'l': return std::make_unique<Kind<std::int64_t>>(array, std::move(rest)...);
        case 'L': return std::make_unique<Kind<std::uint64_t>>(array, std::move(rest)...);
        default: return nullptr;
    }
}

std::unique_ptr<Column> make_column(const ArrowSchema& schema, const ArrowArray& array) {
    const std::string_view format = schema.format;
    if (schema.dictionary && format.size() == 1)
        if (auto column = by_integer<DictionaryColumn>(format[0], array, make_column(*schema.dictionary, *array.dictionary)))
            return column;
    if (format.size() == 1) {
        if (auto column = by_integer<NumberColumn>(format[0], array)) return column;
        switch (format[0]) {
            case 'f': return std::make_unique<NumberColumn<float>>(array);
            case 'g': return std::make_unique<NumberColumn<double>>(array);
            case 'b': return std::make_unique<BoolColumn>(array);
            case 'u': case 'z': return std::make_unique<TextColumn<std::int32_t>>(array);
            case 'U': case 'Z': return std::make_unique<TextColumn<std::int64_t>>(array);
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
    throw std::invalid_argument("column '" + std::string(schema.name ? schema.name : "") + "' is of a type (Arrow's '" +
                                std::string(format) + "'), which is not read; make it a column of texts, numbers or times");
}

}  // namespace

ArrowReader::ArrowReader(ArrowArrayStream* stream) {
    static_cast<ArrowArrayStream&>(stream_) = *stream;
    stream->release = nullptr;  // moved, as the interface has it
    if (stream_.get_schema(&stream_, &schema_) != 0) fail("reading the columns' types");
    if (std::string_view(schema_.format) != "+s") throw std::invalid_argument("not a table: it has no columns");
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

void ArrowReader::fail(const char* doing) {
    const char* reason = stream_.get_last_error ? stream_.get_last_error(&stream_) : nullptr;
    throw std::runtime_error(std::string(doing) + ": " + (reason ? reason : "the table's owner gave no reason"));
}

}  // namespace fm2
