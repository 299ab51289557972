// The text form of a value. Vocabularies store texts, so every reader of values (text files, Arrow columns, Python objects) goes through
// these functions: the same value always becomes the same feature.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace fm2 {

using TextBuffer = std::array<char, 32>;  // long enough for any number or time

inline std::string_view format_bool(bool value) { return value ? "true" : "false"; }

// The shortest decimal text that reads back as the number. A float without a fraction looks like an integer (100000, not 1e+05); NaN is
// the missing value, an empty text.
template <class Number>
std::string_view format_number(Number value, TextBuffer& buffer) {
    if constexpr (std::is_floating_point_v<Number>) {
        constexpr double integers = 9e15;  // all doubles below are exact integers if they have no fraction
        if (std::isnan(value)) return {};
        if (std::abs(value) < integers && value == std::floor(value)) return format_number(static_cast<std::int64_t>(value), buffer);
    }
    const char* end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
    return {buffer.data(), static_cast<std::size_t>(end - buffer.data())};
}

// A time is "@" and its seconds since 1970, which every TimeFormat parses.
inline std::string_view format_time(std::int64_t seconds, TextBuffer& buffer) {
    buffer[0] = '@';
    const char* end = std::to_chars(buffer.data() + 1, buffer.data() + buffer.size(), seconds).ptr;
    return {buffer.data(), static_cast<std::size_t>(end - buffer.data())};
}

// Merges different spellings of one value in text files: 1.0 is 1, True is true.
inline std::string_view normalize_spelling(std::string_view text) {
    if (text == "True" || text == "False") return format_bool(text == "True");
    if (text.size() < 3 || !text.ends_with(".0")) return text;
    const std::string_view integer = text.substr(0, text.size() - 2);
    std::int64_t value;
    const auto [end, error] = std::from_chars(integer.data(), integer.data() + integer.size(), value);
    return error == std::errc{} && end == integer.data() + integer.size() ? integer : text;
}

}  // namespace fm2
