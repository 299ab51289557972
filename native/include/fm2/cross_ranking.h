// How much the combinations of fields add to a model's predictions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fm2/cross.h"

namespace fm2 {

// Training rows of single-valued fields, and the derivatives of their log loss with respect to the logit of a model that has not seen them.
struct ResidualRows {
    const std::int32_t* ids;           // [field][row]
    std::span<const float> residuals;  // weight * (label - probability)
    std::span<const float> curvatures;  // weight * probability * (1 - probability)
    std::span<const std::uint8_t> halves;  // 0 or 1: the half that the row belongs to
    std::span<const float> counts;         // how often the row counts towards min_count

    std::size_t rows() const { return residuals.size(); }
};

struct ValidationRows {
    const std::int32_t* ids;  // [field][row]
    std::span<const float> logits, labels, weights;

    std::size_t rows() const { return logits.size(); }
};

// What a cross adds. Its weights are g / (h + ridge), where g and h are the sums of residuals and curvatures of a combination; those of
// combinations that occur fewer than min_count times are 0. The ridge is the one with which the weights of one half fit the other half
// best.
struct CrossGain {
    double gain, error;        // the mean decrease of the log loss of the validation rows, and its standard error
    std::size_t combinations;  // that have a weight
    double covered;            // the share of the validation rows that have one
    double ridge;
};

CrossGain measure_cross(std::span<const std::size_t> fields, const ResidualRows& training, const ValidationRows& validation,
                        std::size_t min_count);

// Writes the weight of each row's combination: for training rows from the other half, for validation rows from both.
void cross_shifts(std::span<const std::size_t> fields, const ResidualRows& training, const ValidationRows& validation,
                  std::size_t min_count, float* training_shifts, float* validation_shifts);

}  // namespace fm2
