#include "fm2/transform.h"

#include <cmath>

#include "check.h"

TEST(log_square_follows_the_paper) {
    CHECK(fm2::log_square(-3) == -3 && fm2::log_square(0) == 0 && fm2::log_square(1) == 1 && fm2::log_square(2) == 2);
    for (int x = 3; x < 100000; x = x * 5 / 4 + 1) CHECK(fm2::log_square(x) == std::ceil(std::log(x) * std::log(x) + 1));
    CHECK(fm2::log_square(3) == 3 && fm2::log_square(4) == 3 && fm2::log_square(5) == 4);
    CHECK(fm2::log_square(2.9) == 2 && fm2::log_square(-0.5) == -1);
    CHECK(fm2::log_square(1e300) > 0 && fm2::log_square(-1e300) < 0);
}

TEST(a_number_is_the_complete_text) {
    CHECK(fm2::parse_number("+12.5e1") == 125.0);
    for (const char* text : {"", "abc", "1 ", " 1", "1,5", "nan", "inf", "1e999", "0x10", "--1"}) CHECK(!fm2::parse_number(text));
}

TEST(a_boundary_belongs_to_the_bucket_above) {
    const std::vector<float> boundaries{1, 2, 5};
    CHECK(fm2::bucket(0, boundaries) == 0 && fm2::bucket(1, boundaries) == 1 && fm2::bucket(4.9f, boundaries) == 2);
    CHECK(fm2::bucket(5, boundaries) == 3 && fm2::bucket(7, {}) == 0);
}

TEST(values_have_one_text_form) {
    fm2::TextBuffer buffer;
    CHECK(fm2::format_number(100000.0, buffer) == "100000" && fm2::format_number(std::int64_t{-7}, buffer) == "-7");
    CHECK(fm2::format_number(0.1f, buffer) == "0.1" && fm2::format_number(1e-5, buffer) == "1e-05" &&
          fm2::format_number(1e22, buffer) == "1e+22");
    CHECK(fm2::format_number(std::nan(""), buffer).empty());
    CHECK(fm2::format_time(86400, buffer) == "@86400" && fm2::format_bool(true) == "true");
    CHECK(fm2::normalize_spelling("-12.0") == "-12" && fm2::normalize_spelling("True") == "true");
    for (const char* text : {"", ".0", "a.0", "1.00", "1.5", "TRUE", "007"}) CHECK(fm2::normalize_spelling(text) == text);
}

TEST(invalid_utf8_is_detected) {
    for (const char* good : {"", "abc", "\xc3\xbc", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\x9f\xbf"}) CHECK(fm2::is_utf8(good));
    for (const char* bad : {"\x80", "\xc3", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xff", "a\xe2\x82"})
        CHECK(!fm2::is_utf8(bad));
}
