// Numbers as weighted features: interpolation between knots, and a standardized number.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/transform.h"

namespace fm2 {

constexpr double linear_limit = 5;  // standard deviations; a number farther from the mean is clipped

// The features of a number: codes with weights. The codes of a field are its values, then missing, then unknown. The values are the knots
// of interpolate, or the standardized number of linear; without training rows there are none.
struct NumberFeatures {
    std::size_t size = 0;
    std::array<std::int32_t, 2> codes{};
    std::array<float, 2> weights{};

    void add(std::size_t code, float weight);  // unless the weight is 0
};

// The number in a cell; NaN if the cell is empty.
std::optional<float> read_number(std::string_view cell);

// The texts of the values and of missing, by code. A knot's text is its number.
std::vector<std::string> number_texts(const Transform& transform);

// The features of a number in a field with the transform interpolate or linear; NaN is missing. Between two knots, the weights are linear
// in sign(x) ln(1 + |x|), which is nearly x itself between knots that are close to each other. Outside, the nearest knot has the weight 1.
NumberFeatures expand_number(float value, const Transform& transform);

}  // namespace fm2
