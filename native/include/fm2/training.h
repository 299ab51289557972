// What all trained models share: the loss and the optimizers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fm2 {

struct Kernels;

// Adagrad   n += g²                          w -= rate g / (√n + ε)                             state: n
// Adam      m, v: the moments of g           w -= rate √(1 - β₂ᵗ) / (1 - β₁ᵗ) m / (√v + ε)       state: m, v
// FTRL      z += g - (√(n + g²) - √n) w / rate
//           n += g²                          w minimizes z w + l1 |w| + ((β + √n) / rate + l2) w² / 2     state: z, n
// Collect   writes g to its state and leaves w alone, for tables whose rows are updated elsewhere                state: g
// Only rows that occur in a batch are updated; t counts all steps. Adagrad and Adam add l2 w to the gradient.
struct Optimizer {
    enum class Rule : std::uint8_t { adagrad, adam, ftrl, collect };

    Rule rule = Rule::adagrad;
    float learning_rate = 0.05f;
    float epsilon = 1e-10f;
    float beta1 = 0.9f, beta2 = 0.999f;  // Adam
    float beta = 1;                      // FTRL
    float l1 = 0, l2 = 0;

    std::size_t states() const { return rule == Rule::adagrad || rule == Rule::collect ? 1 : 2; }

    void check() const;  // throws std::invalid_argument if a value is out of range
};

// The logistic loss of a batch: returns the mean of -log(likelihood of the label), weighted if `weights` is not null; `gradients` receives
// its gradient with respect to the logits. `total` is the sum of the weights of all rows, if the batch has only some of them; 0 means that
// it has all. Throws std::invalid_argument if the sum of the weights is not positive.
double log_loss(const Kernels& kernels, const float* logits, const float* labels, const float* weights, std::size_t count, float* gradients,
                double total = 0);

// Returns the mean loss of `rows` rows from their weighted sum; 0 if the weights sum to 0.
double mean_loss(double sum, const float* weights, std::size_t rows);

}  // namespace fm2
