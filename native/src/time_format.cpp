#include "fm2/time_format.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <stdexcept>

#include "fm2/transform.h"

namespace fm2 {
namespace {

constexpr std::int64_t day_seconds = 86400;
constexpr std::int64_t latest = 1'000'000'000'000'000;  // larger numbers are not times

struct Moment {
    int year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0;
    int offset = 0;  // seconds ahead of UTC
};

std::int64_t floor_mod(std::int64_t value, std::int64_t by) { return ((value % by) + by) % by; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::optional<int> take_digits(std::string_view& text, std::size_t fewest, std::size_t most) {
    int value = 0;
    std::size_t digits = 0;
    for (; digits < most && digits < text.size() && is_digit(text[digits]); ++digits) value = 10 * value + (text[digits] - '0');
    if (digits < fewest) return std::nullopt;
    text.remove_prefix(digits);
    return value;
}

void skip_fraction(std::string_view& text, char next) {
    if (text.size() < 2 || (text[0] != '.' && text[0] != ',') || text[0] == next || !is_digit(text[1])) return;
    text.remove_prefix(1);
    while (!text.empty() && is_digit(text[0])) text.remove_prefix(1);
}

// The seconds ahead of UTC of Z, +02:00, -0330 or +02.
std::optional<int> take_offset(std::string_view& text) {
    if (text.empty()) return std::nullopt;
    const char sign = text[0];
    if (sign != 'Z' && sign != '+' && sign != '-') return std::nullopt;
    text.remove_prefix(1);
    if (sign == 'Z') return 0;
    const auto hours = take_digits(text, 2, 2);
    if (!hours || *hours > 23) return std::nullopt;
    std::string_view rest = text;
    if (rest.starts_with(':')) rest.remove_prefix(1);
    const auto minutes = take_digits(rest, 2, 2);
    if (minutes) text = rest;
    if (minutes.value_or(0) > 59) return std::nullopt;
    return (sign == '-' ? -60 : 60) * (60 * *hours + minutes.value_or(0));
}

bool take(std::string_view& text, const TimeFormat::Item& item, Moment& moment) {
    if (!item.directive) {
        if (text.empty() || text[0] != item.literal) return false;
        text.remove_prefix(1);
        return true;
    }
    const auto value = item.directive == 'z' ? take_offset(text) : take_digits(text, item.fewest, item.most);
    if (!value) return false;
    switch (item.directive) {
        case 'Y': moment.year = *value; break;
        case 'y': moment.year = *value + (*value < 69 ? 2000 : 1900); break;
        case 'm': moment.month = *value; break;
        case 'd': moment.day = *value; break;
        case 'H': moment.hour = *value; break;
        case 'M': moment.minute = *value; break;
        case 'S':
            moment.second = *value;
            skip_fraction(text, item.next);
            break;
        default: moment.offset = *value;
    }
    return true;
}

std::optional<std::int64_t> to_seconds(const Moment& moment) {
    const std::chrono::year_month_day date{std::chrono::year{moment.year}, std::chrono::month(static_cast<unsigned>(moment.month)),
                                           std::chrono::day(static_cast<unsigned>(moment.day))};
    if (!date.ok() || moment.hour > 23 || moment.minute > 59 || moment.second > 60) return std::nullopt;
    const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
    return days * day_seconds + moment.hour * 3600 + moment.minute * 60 + moment.second - moment.offset;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value > -latest && value < latest ? std::optional(value) : std::nullopt;
}

std::vector<TimeFormat::Item> split_format(const std::string& format) {
    std::vector<TimeFormat::Item> items;
    for (std::size_t i = 0; i < format.size(); ++i) {
        if (format[i] != '%' || (i + 1 < format.size() && format[i + 1] == '%')) {
            items.push_back({.literal = format[i]});
            i += format[i] == '%';
        } else if (++i < format.size() && std::string_view("YymdHMSz").find(format[i]) != std::string_view::npos) {
            items.push_back({.directive = format[i]});
        } else {
            throw std::invalid_argument("the time format '" + format + "' has a % that is not one of %Y %y %m %d %H %M %S %z %%");
        }
    }
    return items;
}

// Whether a directive's digits end here: at the end of the format, or at an item that cannot be a digit.
bool ends_digits(const std::vector<TimeFormat::Item>& items, std::size_t at) {
    if (at >= items.size()) return true;
    return items[at].directive ? items[at].directive == 'z' : !is_digit(items[at].literal);
}

}  // namespace

TimeFormat::TimeFormat(const std::string& format) {
    if (format == "unix" || format == "unix_ms") {
        per_second_ = format == "unix" ? 1 : 1000;
        return;
    }
    items_ = split_format(format);
    for (std::size_t i = 0; i < items_.size(); ++i) {
        Item& item = items_[i];
        if (!item.directive) continue;
        const bool alone = (i == 0 || ends_digits(items_, i - 1)) && ends_digits(items_, i + 1);
        item.most = item.directive == 'Y' ? 4 : 2;
        item.fewest = item.directive == 'Y' || item.directive == 'y' || !alone ? item.most : 1;
        item.next = i + 1 < items_.size() ? items_[i + 1].literal : '\0';
    }
}

std::optional<std::int64_t> TimeFormat::parse(std::string_view text) const {
    if (text.starts_with('@')) return parse_integer(text.substr(1));
    if (per_second_ > 0) {
        const auto value = parse_number(text);
        if (!value || std::abs(*value) > latest) return std::nullopt;
        return static_cast<std::int64_t>(std::floor(*value / per_second_));
    }
    Moment moment;
    for (const Item& item : items_)
        if (!take(text, item, moment)) return std::nullopt;
    return text.empty() ? to_seconds(moment) : std::nullopt;
}

int weekday(std::int64_t seconds) {  // 1970 began on a Thursday
    return static_cast<int>((floor_mod(seconds, 7 * day_seconds) / day_seconds + 3) % 7);
}

int hour(std::int64_t seconds) { return static_cast<int>(floor_mod(seconds, day_seconds) / 3600); }

}  // namespace fm2
