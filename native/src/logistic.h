// The log loss of rows, one after the other.
#pragma once

#include <algorithm>
#include <cmath>

namespace fm2 {

struct Logistic {
    // Adds a row's loss; returns the slope of the loss in the logit.
    float add(float logit, float label, float weight) {
        const float small = std::exp(-std::fabs(logit));
        sum += double{weight} * (std::max(logit, 0.0f) - logit * label + std::log1p(small));
        weights += weight;
        return weight * ((logit >= 0 ? 1 : small) / (1 + small) - label);
    }

    double mean() const { return weights > 0 ? sum / weights : 0; }

    double sum = 0, weights = 0;
};

}  // namespace fm2
