// From a cell to the feature it stands for: the transforms of numbers and times (section 5.1 of the paper).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/cells.h"

namespace fm2 {

std::optional<double> parse_number(std::string_view text);  // finite, or nothing

// The paper's transform: x > 2 becomes floor(ln(x)^2), the rest stays. A fraction is rounded down first.
std::int64_t log_square(double x);

// Which of the buckets between the boundaries a value lies in; a boundary belongs to the bucket above it.
std::size_t bucket(float value, const std::vector<float>& boundaries);

// Seconds since 1970, from a text in a format of %Y %y %m %d %H %M %S and plain characters; "unix" and "unix_ms" are
// formats too. Whatever the format, "@" and a number of seconds is understood: so do tables hand out their times.
class TimeFormat {
public:
    explicit TimeFormat(std::string format);  // throws std::invalid_argument
    std::optional<std::int64_t> parse(std::string_view text) const;

private:
    std::string format_;
};

int weekday(std::int64_t seconds);  // Monday is 0
int hour(std::int64_t seconds);

struct Transform {
    enum class Kind : std::uint8_t { none, log_square, quantiles, weekday, hour };

    Kind kind = Kind::none;
    std::vector<float> boundaries;   // of quantiles
    std::optional<TimeFormat> time;  // of weekday and hour

    // Replaces every cell by its token, the name of its feature; a missing cell stays empty; 1.0 and 1 are one category. Cells that cannot be read
    // are listed in `bad` and left as they are.
    void apply(Batch& batch, std::vector<std::size_t>& bad) const;
    Fault fault() const;
};

bool is_utf8(std::string_view text);

}  // namespace fm2
