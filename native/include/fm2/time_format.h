// Times as text: parsed by a format to seconds since 1970, in UTC.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fm2 {

// Parses times to seconds since 1970. A format consists of literal characters and %Y %y %m %d %H %M %S %z %%, or is "unix" or "unix_ms".
// %Y has four digits and the others two, or one between literal characters, as in 1/5/2024. %S accepts a fraction, which is dropped.
// %z is Z or an offset from UTC: +02:00, +0200 or +02.
// Every format also accepts "@" and a number of seconds, which is how format_time() writes times.
class TimeFormat {
public:
    explicit TimeFormat(const std::string& format);  // throws std::invalid_argument
    std::optional<std::int64_t> parse(std::string_view text) const;

    // A directive or a literal character.
    struct Item {
        char directive = 0;  // 0 for a literal character
        char literal = 0;
        std::uint8_t fewest = 0, most = 0;  // digits of a directive
        char next = 0;                      // the literal character that follows a directive, if one does
    };

private:
    std::vector<Item> items_;
    double per_second_ = 0;  // of numbers since 1970; 0 if the format has items
};

int weekday(std::int64_t seconds);  // Monday is 0
int hour(std::int64_t seconds);

}  // namespace fm2
