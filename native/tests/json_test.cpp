// The JSON reader: what it reads, what it refuses, and arbitrary bytes. `make sanitize` runs this under the sanitizers.
#include "fm2/json.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "check.h"

namespace {

// A copy without spare bytes, so that the sanitizer sees every read beyond the end.
std::vector<char> exact(std::string_view text) { return {text.begin(), text.end()}; }

bool is_valid(std::string_view text) {
    const std::vector<char> copy = exact(text);
    fm2::TextArena arena;
    try {
        fm2::JsonReader json({copy.data(), copy.size()}, arena);
        json.skip();
        json.finish();
    } catch (const fm2::RequestError&) {
        return false;
    }
    return true;
}

std::string string_of(std::string_view text) {
    fm2::TextArena arena;
    fm2::JsonReader json(text, arena);
    return std::string(json.string());
}

double number_of(std::string_view text) {
    fm2::TextArena arena;
    return fm2::JsonReader(text, arena).number().value();
}

std::string written(std::string_view text) {
    std::string out;
    fm2::append_json(out, text);
    return out;
}

}  // namespace

TEST(valid_json_is_read) {
    for (const char* text :
         {"0", "-0", "1.5e+3", " [ ] ", "{}", R"({"a":[1,{"b":null}],"":true})", R"("\u00e9\ud83d\ude00")", "\"é\"", "false"})
        CHECK(is_valid(text));
}

TEST(invalid_json_is_refused) {
    for (const char* text : {"",
                             "01",
                             "+1",
                             "1.",
                             ".5",
                             "1e",
                             "-",
                             "[1,]",
                             "[1 2]",
                             "{\"a\"}",
                             "{a:1}",
                             "nul",
                             "tru",
                             "NaN",
                             "\"",
                             "\"\\",
                             "\"\\u12\"",
                             "\"\\x\"",
                             "[",
                             "]",
                             "{\"a\":",
                             "1 2",
                             "\"\n\"",
                             "\"\xff\"",
                             "\"\xc0\x80\"",
                             "\"\xed\xa0\x80\"",
                             "\"\\ud800\"",
                             "\"\\udc00\"",
                             "//",
                             "'a'"})
        CHECK(!is_valid(text));
    CHECK(!is_valid(std::string_view("1\0", 2)));
    CHECK(!is_valid(std::string_view("\"\0\"", 3)));
}

TEST(nothing_is_read_beyond_the_end) {
    const std::string text = R"({"a":[1.5e3,"b\u0041",true,null],"c":-7})";
    for (std::size_t size = 0; size < text.size(); ++size) {
        const std::vector<char> copy = exact(text.substr(0, size));
        CHECK(!is_valid({copy.data(), copy.size()}));
        fm2::TextArena arena;
        CHECK(!fm2::JsonReader({copy.data() + size, 0}, arena).kind());
    }
}

TEST(strings_are_unescaped) {
    CHECK(string_of(R"("")").empty());
    CHECK(string_of(R"("plain, longer than eight bytes")") == "plain, longer than eight bytes");
    CHECK(string_of(R"("\"\\\/\b\f\n\r\t")") == "\"\\/\b\f\n\r\t");
    CHECK(string_of(R"("before \u0041\u00e9\u20ac\ud83d\ude00 after")") == "before Aé€😀 after");
    CHECK(string_of(R"("\u0000")") == std::string(1, '\0'));
    for (std::size_t length = 0; length < 20; ++length) {
        const std::string text(length, 'x');
        CHECK(string_of("\"" + text + "\"") == text);
        CHECK(string_of("\"" + text + "\\n" + text + "\"") == text + "\n" + text);
    }
}

TEST(strings_last_as_long_as_the_arena) {
    fm2::TextArena arena;
    std::string text = "[";
    for (int i = 0; i < 5000; ++i) text += (i ? ",\"" : "\"") + std::to_string(i) + "\\u0020 and more than that\"";
    text += "]";
    fm2::JsonReader json(text, arena);
    std::vector<std::string_view> strings;
    json.array([&](std::size_t) { strings.push_back(json.string()); });
    for (std::size_t i = 0; i < strings.size(); ++i) CHECK(strings[i] == std::to_string(i) + "  and more than that");
}

TEST(numbers_are_correctly_rounded) {
    CHECK(number_of("0.1") == 0.1);
    CHECK(number_of("9007199254740993") == 9007199254740992.0);
    CHECK(number_of("1e-400") == 0.0);
    CHECK(std::signbit(number_of("-1e-400")));
    CHECK(number_of("0." + std::string(500, '0') + "1e501") == 1.0);
    CHECK(number_of("1" + std::string(500, '0') + "e-500") == 1.0);
    CHECK(std::isinf(number_of("1e400")));
    CHECK(std::isinf(number_of("1e999999999999999999999")));
    CHECK(number_of("1e-999999999999999999999") == 0.0);
    CHECK(number_of("0e999999999999999999999") == 0.0);
    CHECK(number_of("4.9406564584124654e-324") == std::numeric_limits<double>::denorm_min());
}

TEST(nesting_has_a_limit) {
    const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
    CHECK(is_valid(nested(fm2::JsonReader::max_depth)));
    CHECK(!is_valid(nested(fm2::JsonReader::max_depth + 1)));
    CHECK(!is_valid(std::string(1'000'000, '[')));
}

TEST(written_strings_are_read_back) {
    for (const std::string& text : {std::string("plain"), std::string("\"\\\n\x1f\0", 5), std::string("é😀"), std::string()})
        CHECK(string_of(written(text)) == text);
    CHECK(is_valid(written("\xff\xfe")));
}

TEST(written_floats_are_read_back) {
    std::mt19937 random(1);
    for (int i = 0; i < 100'000; ++i) {
        const float number = std::ldexp(static_cast<float>(random()), -static_cast<int>(random() % 160));
        std::string out;
        fm2::append_json(out, number);
        CHECK(is_valid(out));
        CHECK(static_cast<float>(number_of(out)) == number);
    }
}

TEST(arbitrary_bytes_are_read_or_refused) {
    const std::string_view pieces[] = {"{", "}",  "[",  "]",    ",",    ":",     "\"",     "\\", "\\u", "d83d", "\\ude00", "1",
                                       "-", ".5", "e9", "true", "null", "\"a\"", "\"a\":", " ",  "\n",  "\xff", "é",       "x"};
    std::mt19937 random(2);
    for (int round = 0; round < 200'000; ++round) {
        std::string text;
        for (std::size_t count = random() % 12; count; --count) text += pieces[random() % std::size(pieces)];
        is_valid(text);
    }
}
