#include "fm2/optimizer.h"

#include <limits>

#include "fm2/expect.h"

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

}  // namespace fm2
