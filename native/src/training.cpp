#include "fm2/training.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "fm2/expect.h"
#include "kernels/kernels.h"

namespace fm2 {

void Optimizer::check() const {
    constexpr float smallest = std::numeric_limits<float>::min(), largest = std::numeric_limits<float>::max();
    const auto check_range = [](const char* name, float value, float from, float to) {
        expect(value >= from && value <= to, "optimizer: ", name, " is out of range: ", value);
    };
    check_range("learning_rate", learning_rate, smallest, largest);
    check_range("epsilon", epsilon, 0, largest);
    check_range("beta1", beta1, 0, 1 - std::numeric_limits<float>::epsilon());
    check_range("beta2", beta2, 0, 1 - std::numeric_limits<float>::epsilon());
    check_range("beta", beta, 0, largest);
    check_range("l1", l1, 0, largest);
    check_range("l2", l2, 0, largest);
}

double log_loss(const Kernels& kernels, const float* logits, const float* labels, const float* weights, std::size_t count, float* gradients,
                double total) {
    constexpr std::size_t block = 256;
    if (total == 0) total = weights ? std::accumulate(weights, weights + count, 0.0) : static_cast<double>(count);
    if (!(total > 0)) throw std::invalid_argument("log_loss: the sum of the weights must be positive");
    const float scale = static_cast<float>(1 / total);
    double loss = 0;
    for (std::size_t begin = 0; begin < count; begin += block) {
        const std::size_t size = std::min(block, count - begin);
        float shares[block], losses[block];
        for (std::size_t i = 0; i < size; ++i) shares[i] = weights ? weights[begin + i] * scale : scale;
        kernels.logistic(logits + begin, labels + begin, shares, size, losses, gradients + begin);
        loss = std::accumulate(losses, losses + size, loss);
    }
    return loss;
}

double mean_loss(double sum, const float* weights, std::size_t rows) {
    const double total = weights ? std::accumulate(weights, weights + rows, 0.0) : static_cast<double>(rows);
    return total > 0 ? sum / total : 0;
}

}  // namespace fm2
