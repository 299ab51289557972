#include "fm2/time_format.h"

#include <stdexcept>

#include "check.h"

using fm2::TimeFormat;

constexpr std::int64_t leap_day = 1709164800;  // 2024-02-29 00:00 UTC

TEST(times_are_parsed_by_their_format) {
    const TimeFormat avazu("%y%m%d%H");
    const auto seconds = avazu.parse("14102113");
    CHECK(seconds && fm2::weekday(*seconds) == 1 && fm2::hour(*seconds) == 13);  // a Tuesday
    for (const char* text : {"", "1410211", "141021135", "14132100", "14102124", "1410210x"}) CHECK(!avazu.parse(text));
    CHECK(avazu.parse("@86400") == 86400);
    const TimeFormat iso("%Y-%m-%dT%H:%M:%S");
    CHECK(iso.parse("1970-01-01T00:00:01") == 1 && iso.parse("1969-12-31T23:59:59") == -1 && !iso.parse("2023-02-29T00:00:00"));
    CHECK(fm2::weekday(-1) == 2 && fm2::hour(-1) == 23);
    CHECK(TimeFormat("unix").parse("12.9") == 12 && TimeFormat("unix_ms").parse("-1") == -1);
}

TEST(fractions_of_a_second_are_dropped) {
    const TimeFormat seconds("%Y-%m-%d %H:%M:%S");
    for (const char* text : {"2024-02-29 00:00:07", "2024-02-29 00:00:07.9", "2024-02-29 00:00:07,999999999"})
        CHECK(seconds.parse(text) == leap_day + 7);
    for (const char* text : {"2024-02-29 00:00:07.", "2024-02-29 00:00:07.x", "2024-02-29 00:00:07.5.5"}) CHECK(!seconds.parse(text));
    CHECK(TimeFormat("%Y-%m-%d %H:%M:%SZ").parse("2024-02-29 00:00:07.25Z") == leap_day + 7);
    const TimeFormat literal("%S.000");  // the format itself continues with a dot
    CHECK(literal.parse("07.000") == 7 && !literal.parse("07.5.000"));
}

TEST(offsets_are_converted_to_utc) {
    const TimeFormat format("%Y-%m-%d %H:%M%z");
    for (const char* text : {"2024-02-29 00:00Z", "2024-02-29 02:00+02:00", "2024-02-28 20:30-0330", "2024-02-29 05:00+05"})
        CHECK(format.parse(text) == leap_day);
    for (const char* offset : {"", "z", "+", "+2", "+99:00", "+24", "+02:60", "+02:", "+02:0", "+02:000", "UTC", "ZZ"})
        CHECK(!format.parse("2024-02-29 00:00" + std::string(offset)));
}

TEST(a_lone_number_may_have_one_digit) {
    const TimeFormat format("%m/%d/%Y %H:%M:%S%z");
    CHECK(format.parse("2/29/2024 0:0:7Z") == leap_day + 7 && format.parse("02/29/2024 00:00:07Z") == leap_day + 7);
    for (const char* text : {"/29/2024 0:0:7Z", "2/029/2024 0:0:7Z", "2/29/24 0:0:7Z"}) CHECK(!format.parse(text));
    CHECK(TimeFormat("%Y-%m-%d").parse("2024-2-29") == leap_day && !TimeFormat("%y/%m/%d").parse("4/2/29"));
    for (const char* text : {"2024229", "202422", "2024-2-29"}) CHECK(!TimeFormat("%Y%m%d").parse(text));
    CHECK(!TimeFormat("%Y%m%dT%H%M").parse("20240229T930") && !TimeFormat("1%d").parse("15"));
}

TEST(times_that_do_not_exist_are_refused) {
    const TimeFormat format("%Y-%m-%d %H:%M:%S");
    for (const char* text : {"2023-02-29 00:00:00", "2024-13-01 00:00:00", "2024-00-01 00:00:00", "2024-04-31 00:00:00",
                             "2024-01-01 25:00:00", "2024-01-01 00:60:00", "2024-01-01 00:00:61"})
        CHECK(!format.parse(text));
    CHECK(format.parse("2000-02-29 00:00:00") && !format.parse("1900-02-29 00:00:00"));
}

TEST(unknown_directives_are_refused) {
    for (const char* format : {"%", "%Y-%", "%Q", "%%%", "%I:%M"}) CHECK(throws<std::invalid_argument>([&] { TimeFormat{format}; }));
    CHECK(TimeFormat("%d%%").parse("2%") == 86400);
}
