// Checks of arguments.
#pragma once

#include <stdexcept>
#include <string>
#include <type_traits>

namespace fm2 {

// Throws std::invalid_argument unless the condition holds. Formats the message only then: a check may precede a prediction that takes less
// time than building a string.
template <class... Parts>
void expect(bool fits, const Parts&... parts) {
    if (fits) [[likely]]
        return;
    std::string message;
    const auto add = [&](const auto& part) {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) message += std::to_string(part);
        else message += part;
    };
    (add(parts), ...);
    throw std::invalid_argument(message);
}

}  // namespace fm2
