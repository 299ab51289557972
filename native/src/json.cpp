#include "fm2/json.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>

#include "fm2/transform.h"

namespace fm2 {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Returns the first quote, backslash or control character.
const char* find_special(const char* at, const char* end) {
    constexpr std::uint64_t ones = 0x0101010101010101, high = 0x8080808080808080;
    const auto zeros = [](std::uint64_t word) { return (word - ones) & ~word & high; };
    for (; end - at >= 8; at += 8) {
        std::uint64_t word;
        std::memcpy(&word, at, sizeof word);
        const std::uint64_t special = zeros(word ^ ones * '"') | zeros(word ^ ones * '\\') | ((word - ones * 0x20) & ~word & high);
        if (!special) continue;
        if constexpr (std::endian::native == std::endian::little) return at + std::countr_zero(special) / 8;
        break;
    }
    while (at != end && *at != '"' && *at != '\\' && static_cast<unsigned char>(*at) >= 0x20) ++at;
    return at;
}

char* append_utf8(char* to, unsigned code) {
    const auto put = [&](unsigned byte) { *to++ = static_cast<char>(byte); };
    if (code < 0x80) return put(code), to;
    if (code < 0x800) return put(0xC0 | code >> 6), put(0x80 | (code & 0x3F)), to;
    if (code < 0x10000) return put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F)), to;
    return put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F)), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F)), to;
}

// Whether a number that no double can have is closer to 0 than all of them, not too large.
bool is_tiny(std::string_view text) {
    const std::size_t exponent_at = std::min(text.find_first_of("eE"), text.size());
    const std::string_view digits = text.substr(0, exponent_at);
    const std::size_t point = std::min(digits.find('.'), digits.size()), first = digits.find_first_of("123456789");
    if (first == digits.npos) return true;
    std::int64_t exponent = 0;
    const char* begin = text.data() + std::min(exponent_at + 1, text.size());
    if (begin != text.data() + text.size()) {
        const bool negative = *begin == '-';
        begin += negative || *begin == '+';
        if (std::from_chars(begin, text.data() + text.size(), exponent).ec != std::errc{}) return negative;
        if (negative) exponent = -exponent;
    }
    return exponent < static_cast<std::int64_t>(first) - static_cast<std::int64_t>(point);
}

}  // namespace

void TextArena::grow(std::size_t size) {
    blocks_.push_back(std::make_unique<char[]>(left_ = std::max(size, block)));
    at_ = blocks_.back().get();
}

void TextArena::clear() {
    if (blocks_.empty()) return;
    blocks_.resize(1);
    at_ = blocks_[0].get();
    left_ = block;  // the first block may be larger
}

double JsonNumber::value() const {
    double value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc{}) return value;
    if (!is_tiny(text)) return text[0] == '-' ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
    return text[0] == '-' ? -0.0 : 0.0;
}

JsonReader::JsonReader(std::string_view text, TextArena& arena)
    : begin_(text.data()), at_(begin_), end_(begin_ + text.size()), arena_(&arena) {
    if (!is_utf8(text)) refuse(reason::json, "the body is not valid UTF-8");
}

void JsonReader::fail(std::string_view problem) const {
    if (at_ == end_) refuse(reason::json, "invalid JSON: ", problem, ", but the text ends after ", at_ - begin_, " bytes");
    refuse(reason::json, "invalid JSON at byte ", at_ - begin_, ": ", problem);
}

const char* JsonReader::kind() {
    const char first = peek();
    switch (first) {
        case '{': return "an object";
        case '[': return "an array";
        case '"': return "a string";
        case 't':
        case 'f': return "a boolean";
        case 'n': return "null";
        default: return is_digit(first) || first == '-' ? "a number" : nullptr;
    }
}

void JsonReader::expected(const char* what) {
    const char* const found = kind();
    if (!found) fail(std::string("expected ") + what);
    refuse(reason::request, "expected ", what, ", got ", found);
}

std::string_view JsonReader::string() {
    if (peek() != '"') expected("a string");
    const char* begin = ++at_;
    at_ = find_special(at_, end_);
    if (at_ != end_ && *at_ == '"') return {begin, static_cast<std::size_t>(at_++ - begin)};
    return unescape(begin);
}

std::string_view JsonReader::unescape(const char* begin) {
    const char* end = at_;  // of the string: no escape is shorter than its character
    while (end != end_ && *end != '"') end = find_special(end + (*end == '\\' ? std::min<std::ptrdiff_t>(2, end_ - end) : 1), end_);
    char* const text = arena_->take(static_cast<std::size_t>(end - begin));
    char* to = std::copy(begin, at_, text);
    while (at_ != end_ && *at_ != '"') {
        if (*at_ != '\\') fail("control characters must be escaped in strings");
        to = escape(to);
        const char* next = find_special(at_, end_);
        to = std::copy(at_, next, to);
        at_ = next;
    }
    if (at_ == end_) fail("expected '\"'");
    ++at_;
    return {text, static_cast<std::size_t>(to - text)};
}

// Reads an escape sequence.
char* JsonReader::escape(char* to) {
    if (++at_ == end_) fail("expected an escape sequence");
    constexpr std::string_view names = "\"\\/bfnrt", values = "\"\\/\b\f\n\r\t";
    const char name = *at_;
    if (const std::size_t known = names.find(name); known != names.npos) return *to = values[known], ++at_, to + 1;
    if (name != 'u') fail("unknown escape sequence");
    ++at_;
    unsigned code = hex();
    if (code >= 0xDC00 && code <= 0xDFFF) fail("a surrogate has no partner");
    if (code >= 0xD800 && code <= 0xDBFF) {
        if (end_ - at_ < 2 || at_[0] != '\\' || at_[1] != 'u') fail("a surrogate has no partner");
        at_ += 2;
        const unsigned low = hex();
        if (low < 0xDC00 || low > 0xDFFF) fail("a surrogate has no partner");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    return append_utf8(to, code);
}

unsigned JsonReader::hex() {
    unsigned code = 0;
    if (end_ - at_ < 4) fail("expected four hexadecimal digits");
    const auto [end, error] = std::from_chars(at_, at_ + 4, code, 16);
    if (error != std::errc{} || end != at_ + 4) fail("expected four hexadecimal digits");
    at_ += 4;
    return code;
}

JsonNumber JsonReader::number() {
    if (peek() != '-' && (at_ == end_ || !is_digit(*at_))) expected("a number");
    const char* const begin = at_;
    const auto digits = [&] {
        if (at_ == end_ || !is_digit(*at_)) fail("expected a digit");
        while (at_ != end_ && is_digit(*at_)) ++at_;
    };
    at_ += *at_ == '-';
    if (at_ != end_ && *at_ == '0') ++at_;
    else digits();
    bool is_integer = true;
    if (at_ != end_ && *at_ == '.') {
        is_integer = false;
        ++at_;
        digits();
    }
    if (at_ != end_ && (*at_ == 'e' || *at_ == 'E')) {
        is_integer = false;
        ++at_;
        if (at_ != end_ && (*at_ == '+' || *at_ == '-')) ++at_;
        digits();
    }
    return {{begin, static_cast<std::size_t>(at_ - begin)}, is_integer};
}

bool JsonReader::boolean() {
    const char first = peek();
    if (first != 't' && first != 'f') expected("a boolean");
    literal(first == 't' ? "true" : "false");
    return first == 't';
}

void JsonReader::literal(std::string_view text) {
    peek();
    if (!std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with(text)) fail("unexpected character");
    at_ += text.size();
}

std::size_t JsonReader::size() {
    const JsonNumber found = number();
    std::size_t value = 0;
    const char* const end = found.text.data() + found.text.size();
    if (!found.is_integer || std::from_chars(found.text.data(), end, value).ptr != end)
        refuse(reason::request, "expected an integer of 0 or more, got ", excerpt(found.text));
    return value;
}

void JsonReader::skip() {
    switch (peek()) {
        case '{': return object([&](std::string_view) { skip(); });
        case '[': array([&](std::size_t) { skip(); }); return;
        case '"': string(); return;
        case 't':
        case 'f': boolean(); return;
        case 'n': null(); return;
        default:
            if (!kind()) fail("expected a value");
            number();
    }
}

std::string_view JsonReader::raw() {
    peek();
    const char* const begin = at_;
    skip();
    return {begin, static_cast<std::size_t>(at_ - begin)};
}

void JsonReader::finish() {
    if (peek() || at_ != end_) fail("unexpected text after the end of the value");
}

void append_json(std::string& out, std::string_view text) {
    constexpr std::string_view digits = "0123456789abcdef";
    const bool valid = is_utf8(text);
    out += '"';
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') (out += '\\') += c;
        else if (byte < 0x20) ((out += "\\u00") += digits[byte >> 4]) += digits[byte & 15];
        else if (byte >= 0x80 && !valid) out += '?';
        else out += c;
    }
    out += '"';
}

namespace {

template <class Number>
void append_number(std::string& out, Number number) {
    std::array<char, 32> buffer;
    out.append(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), number).ptr);
}

}  // namespace

void append_json(std::string& out, float number) { append_number(out, number); }
void append_json(std::string& out, std::uint64_t number) { append_number(out, number); }

}  // namespace fm2
