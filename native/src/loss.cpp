#include "fm2/loss.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "kernels/kernels.h"

namespace fm2 {

double log_loss(const Kernels& kernels, const float* logits, const float* labels, const float* weights, std::size_t count,
                float* gradients) {
    constexpr std::size_t block = 256;
    const double total = weights ? std::accumulate(weights, weights + count, 0.0) : static_cast<double>(count);
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
