#include "fm2/optimizer.h"

#include <limits>
#include <stdexcept>
#include <string>

namespace fm2 {

void Optimizer::check() const {
    constexpr float least = std::numeric_limits<float>::min(), most = std::numeric_limits<float>::max();
    const auto expect = [](const char* name, float value, float from, float to) {
        if (!(value >= from && value <= to))
            throw std::invalid_argument(std::string("optimizer: ") + name + " is " + std::to_string(value) + ", which is out of bounds");
    };
    expect("learning_rate", learning_rate, least, most);
    expect("epsilon", epsilon, 0, most);
    expect("beta1", beta1, 0, 1 - std::numeric_limits<float>::epsilon());
    expect("beta2", beta2, 0, 1 - std::numeric_limits<float>::epsilon());
    expect("beta", beta, 0, most);
    expect("l1", l1, 0, most);
    expect("l2", l2, 0, most);
}

}  // namespace fm2
