// Transforms of numbers and times to features (section 5.1 of the paper).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/cells.h"

namespace fm2 {

std::optional<double> parse_number(std::string_view text);  // finite numbers only

// The paper's transform: floor(ln(x)^2) if x > 2, else x. Fractions are rounded down first.
std::int64_t log_square(double x);

// The bucket of a value; a boundary belongs to the bucket above it.
std::size_t bucket(float value, const std::vector<float>& boundaries);

// Parses times to seconds since 1970. A format consists of %Y %y %m %d %H %M %S and literal characters, or is "unix" or "unix_ms".
// Every format also accepts "@" and a number of seconds, which is how format_time() writes times.
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

    // Replaces every cell with its token, the text that identifies its feature. A missing cell stays empty. Adds the indices of cells that
    // cannot be parsed to `bad`, and leaves these cells unchanged.
    void apply(Batch& batch, std::vector<std::size_t>& bad) const;
    Fault fault() const;  // the fault of a cell that cannot be parsed
    std::optional<std::int64_t> token(std::string_view cell) const;  // of a number or a time
};

bool is_utf8(std::string_view text);

}  // namespace fm2
