// The rules by which a summed gradient moves a row of weights.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fm2 {

// Adagrad   n += g²                          w -= rate g / (√n + ε)                             remembers n
// Adam      m, v: the moments of g           w -= rate √(1 - β₂ᵗ) / (1 - β₁ᵗ) m / (√v + ε)       remembers m, v
// FTRL      z += g - (√(n + g²) - √n) w / rate
//           n += g²                          w minimizes z w + l1 |w| + ((β + √n) / rate + l2) w² / 2     remembers z, n
// Only rows that a batch touches move; t counts all steps. To Adagrad's and Adam's gradient l2 w is added.
struct Optimizer {
    enum class Rule : std::uint8_t { adagrad, adam, ftrl };

    Rule rule = Rule::adagrad;
    float learning_rate = 0.05f;
    float epsilon = 1e-10f;
    float beta1 = 0.9f, beta2 = 0.999f;  // Adam's
    float beta = 1;                      // FTRL's
    float l1 = 0, l2 = 0;

    std::size_t states() const { return rule == Rule::adagrad ? 1 : 2; }

    void check() const;  // throws std::invalid_argument where a number is out of its bounds
};

}  // namespace fm2
