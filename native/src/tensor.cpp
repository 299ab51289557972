#include "fm2/tensor.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "fm2/cells.h"
#include "fm2/value_text.h"
#include "half.h"

namespace fm2 {
namespace {

using Kind = Datatype::Kind;

constexpr std::array<Datatype, 14> datatypes{{{"BYTES", Kind::bytes, 0},
                                              {"INT64", Kind::integer, 8},
                                              {"INT32", Kind::integer, 4},
                                              {"FP32", Kind::floating, 4},
                                              {"FP64", Kind::floating, 8},
                                              {"BOOL", Kind::boolean, 1},
                                              {"INT16", Kind::integer, 2},
                                              {"INT8", Kind::integer, 1},
                                              {"UINT64", Kind::unsigned_integer, 8},
                                              {"UINT32", Kind::unsigned_integer, 4},
                                              {"UINT16", Kind::unsigned_integer, 2},
                                              {"UINT8", Kind::unsigned_integer, 1},
                                              {"FP16", Kind::floating, 2},
                                              {"BF16", Kind::brain_floating, 2}}};

std::string_view keep(std::string_view text, TextArena& arena) {
    char* const kept = arena.take(text.size());
    std::copy(text.begin(), text.end(), kept);
    return {kept, text.size()};
}

template <class Number>
std::string_view keep_number(Number number, TextArena& arena) {
    TextBuffer buffer;
    return keep(format_number(number, buffer), arena);
}

// float32 has a text form of its own; the other types have that of their value as a double.
std::string_view keep_floating(double value, const Datatype& datatype, TextArena& arena) {
    return datatype.size == 4 ? keep_number(static_cast<float>(value), arena) : keep_number(value, arena);
}

template <class Integer>
bool fits(std::string_view text, std::size_t bytes) {
    Integer value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ptr != text.data() + text.size()) return false;
    const unsigned unused = static_cast<unsigned>(64 - 8 * bytes);
    return value >= std::numeric_limits<Integer>::min() >> unused && value <= std::numeric_limits<Integer>::max() >> unused;
}

// Returns the text of an integer that the datatype has.
std::string_view integer_text(JsonReader& json, const Datatype& datatype) {
    const JsonNumber number = json.number();
    if (!number.is_integer) refuse(reason::tensor, "expected an integer for ", datatype.name, ", got ", excerpt(number.text));
    const std::string_view text = number.text == "-0" ? number.text.substr(1) : number.text;
    if (!(datatype.kind == Kind::integer ? fits<std::int64_t>(text, datatype.size) : fits<std::uint64_t>(text, datatype.size)))
        refuse(reason::tensor, excerpt(text), " is out of the range of ", datatype.name);
    return text;
}

}  // namespace

const Datatype& find_datatype(std::string_view name) {
    const auto found = std::ranges::find(datatypes, name, &Datatype::name);
    if (found != datatypes.end()) return *found;
    std::vector<std::string> names;
    for (const Datatype& datatype : datatypes) names.emplace_back(datatype.name);
    refuse(reason::tensor, "unknown datatype ", quoted(name), "; ", suggest(name, names));
}

std::string Tensor::shape_text() const {
    std::string text = "[";
    for (std::size_t d = 0; d < dimensions; ++d) text += (d ? ", " : "") + std::to_string(shape[d]);
    return text + "]";
}

std::string_view read_element(JsonReader& json, const Datatype& datatype, TextArena& arena) {
    const char first = json.peek();
    if (first == 'n') return json.null(), std::string_view();
    const auto check = [&](bool is_valid, const char* what) {
        const char* kind = is_valid ? "" : json.kind();
        if (!is_valid && kind) refuse(reason::tensor, "expected ", what, " for ", datatype.name, ", got ", kind);
    };
    switch (datatype.kind) {
        case Kind::bytes: check(first == '"', "a string"); return json.string();
        case Kind::boolean: check(first == 't' || first == 'f', "a boolean"); return format_bool(json.boolean());
        default: break;
    }
    check(first == '-' || (first >= '0' && first <= '9'), "a number");
    if (datatype.kind == Kind::integer || datatype.kind == Kind::unsigned_integer) return integer_text(json, datatype);
    const JsonNumber number = json.number();
    const double value = number.value();
    if (!std::isfinite(value) || (datatype.size == 4 && !std::isfinite(static_cast<float>(value))))
        refuse(reason::tensor, excerpt(number.text), " is out of the range of ", datatype.name);
    return keep_floating(value, datatype, arena);
}

std::int64_t read_integer(JsonReader& json, const Datatype& datatype) {
    const std::string_view text = integer_text(json, datatype);
    std::int64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

BinaryElements::BinaryElements(const Tensor& tensor, std::string_view data) : tensor_(tensor), left_(data) {
    const std::size_t size = tensor.datatype->size;
    if (size && data.size() != tensor.count() * size)
        refuse(reason::tensor, "expected ", tensor.count() * size, " bytes for the shape ", tensor.shape_text(), " of ",
               tensor.datatype->name, ", got ", data.size());
}

template <class T>
T BinaryElements::load() {
    std::array<char, sizeof(T)> bytes;
    std::copy_n(left_.begin(), sizeof(T), bytes.begin());
    if constexpr (std::endian::native == std::endian::big) std::ranges::reverse(bytes);
    left_.remove_prefix(sizeof(T));
    return std::bit_cast<T>(bytes);
}

std::string_view BinaryElements::text(TextArena& arena) {
    const Datatype& datatype = *tensor_.datatype;
    switch (datatype.kind) {
        case Kind::bytes: {
            const auto size = left_.size() < sizeof(std::uint32_t) ? std::nullopt : std::optional(load<std::uint32_t>());
            if (!size || *size > left_.size())
                refuse(reason::tensor, "the binary data ends within element ", index_, " of ", tensor_.count());
            ++index_;
            const std::string_view text = left_.substr(0, *size);
            left_.remove_prefix(*size);
            return text;
        }
        case Kind::boolean: return format_bool(load<std::uint8_t>() != 0);
        case Kind::integer: return keep_number(integer(), arena);
        case Kind::unsigned_integer: return datatype.size == 8 ? keep_number(load<std::uint64_t>(), arena) : keep_number(integer(), arena);
        default: return keep_floating(floating(), datatype, arena);
    }
}

std::int64_t BinaryElements::integer() {
    const bool is_signed = tensor_.datatype->kind == Kind::integer;
    switch (tensor_.datatype->size) {
        case 1: return is_signed ? load<std::int8_t>() : load<std::uint8_t>();
        case 2: return is_signed ? load<std::int16_t>() : load<std::uint16_t>();
        case 4: return is_signed ? std::int64_t{load<std::int32_t>()} : std::int64_t{load<std::uint32_t>()};
        default: return load<std::int64_t>();
    }
}

double BinaryElements::floating() {
    if (tensor_.datatype->kind == Kind::brain_floating)
        return std::bit_cast<float>(static_cast<std::uint32_t>(load<std::uint16_t>()) << 16);
    switch (tensor_.datatype->size) {
        case 2: return from_half(load<std::uint16_t>());
        case 4: return load<float>();
        default: return load<double>();
    }
}

void BinaryElements::finish() const {
    if (!left_.empty()) refuse(reason::tensor, left_.size(), " bytes of binary data follow the last element");
}

}  // namespace fm2
