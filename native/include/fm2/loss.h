// The logistic loss of a batch, and its gradient.
#pragma once

#include <cstddef>

namespace fm2 {

struct Kernels;

// The mean of -log(likelihood of the label) over rows, weighted where weights is not null; slopes gets its gradient in the logits.
// Throws std::invalid_argument where the weights have no positive sum.
double log_loss(const Kernels& kernels, const float* logits, const float* labels, const float* weights, std::size_t count,
                float* slopes);

// The mean of so many rows' losses, whose weighted sum is known; 0 where the rows weigh nothing.
double mean_loss(double sum, const float* weights, std::size_t rows);

}  // namespace fm2
