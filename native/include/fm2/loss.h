// The logistic loss of a batch and its gradient.
#pragma once

#include <cstddef>

namespace fm2 {

struct Kernels;

// Returns the mean of -log(likelihood of the label), weighted if `weights` is not null; `gradients` receives its gradient with respect to
// the logits. Throws std::invalid_argument if the sum of the weights is not positive.
double log_loss(const Kernels& kernels, const float* logits, const float* labels, const float* weights, std::size_t count,
                float* gradients);

// Returns the mean loss of `rows` rows from their weighted sum; 0 if the weights sum to 0.
double mean_loss(double sum, const float* weights, std::size_t rows);

}  // namespace fm2
