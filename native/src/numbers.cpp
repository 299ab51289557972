#include "fm2/numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fm2 {
namespace {

using Kind = Transform::Kind;

std::size_t value_count(const Transform& transform) {
    if (transform.kind == Kind::linear) return transform.boundaries.empty() ? 0 : 1;
    return transform.boundaries.size();
}

double log_scale(double x) { return std::copysign(std::log1p(std::abs(x)), x); }

NumberFeatures interpolate(float value, const std::vector<float>& knots) {
    NumberFeatures features;
    const std::size_t above = bucket(value, knots);
    if (above == 0 || above == knots.size() || knots[above - 1] == value) {
        features.add(above ? above - 1 : 0, 1);
        return features;
    }
    const double low = log_scale(knots[above - 1]), high = log_scale(knots[above]);
    const auto share = static_cast<float>((log_scale(value) - low) / (high - low));
    features.add(above - 1, 1 - share);
    features.add(above, share);
    return features;
}

float standardize(float value, float mean, float deviation) {
    const double distance = (double{value} - mean) / deviation;
    return static_cast<float>(std::clamp(distance, -linear_limit, linear_limit));
}

}  // namespace

void NumberFeatures::add(std::size_t code, float weight) {
    if (weight == 0) return;
    codes[size] = static_cast<std::int32_t>(code);
    weights[size] = weight;
    ++size;
}

std::optional<float> read_number(std::string_view cell) {
    if (cell.empty()) return std::numeric_limits<float>::quiet_NaN();
    const auto number = parse_number(cell);
    return number ? std::optional(static_cast<float>(*number)) : std::nullopt;
}

std::vector<std::string> number_texts(const Transform& transform) {
    std::vector<std::string> texts;
    TextBuffer buffer;
    if (transform.kind == Kind::linear) texts.resize(value_count(transform), "standardized");
    else
        for (const float knot : transform.boundaries) texts.emplace_back(format_number(knot, buffer));
    texts.emplace_back();
    return texts;
}

NumberFeatures expand_number(float value, const Transform& transform) {
    const std::size_t values = value_count(transform);
    NumberFeatures features;
    if (std::isnan(value)) features.add(values, 1);
    else if (values == 0) features.add(values + 1, 1);
    else if (transform.kind == Kind::linear) features.add(0, standardize(value, transform.boundaries[0], transform.boundaries[1]));
    else return interpolate(value, transform.boundaries);
    return features;
}

}  // namespace fm2
