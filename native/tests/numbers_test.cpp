#include "fm2/numbers.h"

#include <cmath>
#include <limits>

#include "check.h"

using fm2::expand_number;
using fm2::NumberFeatures;
using Kind = fm2::Transform::Kind;

static bool is(const NumberFeatures& features, std::int32_t code, float weight) {
    return features.size == 1 && features.codes[0] == code && features.weights[0] == weight;
}

TEST(a_number_lies_between_two_knots) {
    const fm2::Transform transform{Kind::interpolate, {-2, 0, 3, 1000}, {}};
    for (const float x : {-1.5f, -0.1f, 0.5f, 2.9f, 4.0f, 999.0f}) {
        const NumberFeatures features = expand_number(x, transform);
        CHECK(features.size == 2 && features.codes[1] == features.codes[0] + 1);
        const auto scale = [](double value) { return value < 0 ? -std::log(1 - value) : std::log(1 + value); };
        const double low = scale(transform.boundaries[static_cast<std::size_t>(features.codes[0])]);
        const double high = scale(transform.boundaries[static_cast<std::size_t>(features.codes[1])]);
        CHECK(std::abs(features.weights[0] * low + features.weights[1] * high - scale(x)) < 1e-6);
        CHECK(std::abs(features.weights[0] + features.weights[1] - 1) < 1e-6);
    }
    CHECK(is(expand_number(0, transform), 1, 1) && is(expand_number(3, transform), 2, 1) && is(expand_number(1000, transform), 3, 1));
    CHECK(is(expand_number(-100, transform), 0, 1) && is(expand_number(1e30f, transform), 3, 1));
    CHECK(is(expand_number(std::numeric_limits<float>::infinity(), transform), 3, 1));
    CHECK(is(expand_number(std::nanf(""), transform), 4, 1));
    CHECK(fm2::number_texts(transform) == (std::vector<std::string>{"-2", "0", "3", "1000", ""}));
}

TEST(a_standardized_number_is_clipped) {
    const fm2::Transform transform{Kind::linear, {10, 2}, {}};
    CHECK(is(expand_number(13, transform), 0, 1.5f) && is(expand_number(9, transform), 0, -0.5f));
    CHECK(is(expand_number(1e9f, transform), 0, 5) && is(expand_number(-std::numeric_limits<float>::infinity(), transform), 0, -5));
    CHECK(expand_number(10, transform).size == 0);
    CHECK(is(expand_number(std::nanf(""), transform), 1, 1));
    CHECK(fm2::number_texts(transform) == (std::vector<std::string>{"standardized", ""}));
}

TEST(numbers_without_training_rows_are_unknown) {
    for (const Kind kind : {Kind::interpolate, Kind::linear}) {
        const fm2::Transform transform{kind, {}, {}};
        CHECK(is(expand_number(7, transform), 1, 1) && is(expand_number(std::nanf(""), transform), 0, 1));
        CHECK(fm2::number_texts(transform) == std::vector<std::string>{""});
    }
}
