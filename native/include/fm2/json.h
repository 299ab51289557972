// Reads JSON (RFC 8259) without building objects: the caller pulls one value after the other.
//
// Strict: UTF-8 only, no NaN, no comments, no trailing commas, no lone surrogates, and limits on the depth and on the range of numbers.
// Every error is a RequestError that names the byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fm2/request_error.h"

namespace fm2 {

// Memory for texts, all of which last until it is cleared. Clearing keeps the first block.
class TextArena {
public:
    char* take(std::size_t size) {
        if (size > left_) grow(size);
        left_ -= size;
        return std::exchange(at_, at_ + size);
    }
    void clear();

private:
    void grow(std::size_t size);

    static constexpr std::size_t block = 1 << 16;
    std::vector<std::unique_ptr<char[]>> blocks_;
    char* at_ = nullptr;
    std::size_t left_ = 0;
};

struct JsonNumber {
    std::string_view text;
    bool is_integer;

    double value() const;  // correctly rounded
};

class JsonReader {
public:
    static constexpr int max_depth = 64;

    // The text must outlive the reader. The arena gets the strings that have escapes.
    JsonReader(std::string_view text, TextArena& arena);

    // Returns the first character of the next value, or 0 at the end of the text.
    char peek() {
        while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
        return at_ == end_ ? '\0' : *at_;
    }
    // What the next value is, for messages: "a string", "an array". Null if there is none.
    const char* kind();

    // Calls member(key) for each member of an object, in its order; it has to read the value. Duplicate keys are its concern.
    template <class Member>
    void object(const Member& member) {
        open('{', "an object");
        if (!take('}')) {
            do {
                if (peek() != '"') fail("expected a string as a key");
                const std::string_view key = string();
                if (!take(':')) fail("expected ':'");
                member(key);
            } while (take(','));
            if (!take('}')) fail("expected ',' or '}'");
        }
        --depth_;
    }
    // Calls item(index) for each value of an array; it has to read the value. Returns how many there are.
    template <class Item>
    std::size_t array(const Item& item) {
        open('[', "an array");
        std::size_t count = 0;
        if (!take(']')) {
            do item(count++);
            while (take(','));
            if (!take(']')) fail("expected ',' or ']'");
        }
        --depth_;
        return count;
    }
    // The text of a string lasts as long as that of the reader and the arena.
    std::string_view string();
    JsonNumber number();
    bool boolean();
    void null() { literal("null"); }
    std::size_t size();  // an integer of 0 or more
    void skip();         // any value; checks it
    // Returns the unchanged text of any value.
    std::string_view raw();
    // Checks that nothing follows.
    void finish();

    // A place to return to. The value there has been read before.
    const char* position() const { return at_; }
    void seek(const char* position) { at_ = position; }

    [[noreturn]] void fail(std::string_view problem) const;  // invalid JSON at the current byte
    [[noreturn]] void expected(const char* what);            // valid JSON, but another kind of value

private:
    bool take(char c) {
        if (peek() != c) return false;
        ++at_;
        return true;
    }
    void open(char bracket, const char* what) {
        if (peek() != bracket) expected(what);
        ++at_;
        if (++depth_ > max_depth) fail("nested too deeply");
    }
    void literal(std::string_view text);
    std::string_view unescape(const char* begin);
    unsigned hex();
    char* escape(char* to);

    const char *begin_, *at_, *end_;
    TextArena* arena_;
    int depth_ = 0;
};

// Appends a text as a JSON string. Bytes that are not UTF-8 are replaced.
void append_json(std::string& out, std::string_view text);
void append_json(std::string& out, float number);  // finite; the shortest text that reads back as the same float
void append_json(std::string& out, std::uint64_t number);

}  // namespace fm2
