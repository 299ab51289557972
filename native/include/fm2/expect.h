// Argument checks.
#pragma once

#include <stdexcept>
#include <string>
#include <type_traits>

namespace fm2 {

// Throws std::invalid_argument unless `condition` is true. The message is built from strings and numbers only then, because a
// prediction can take less time than building a string.
template <class... Parts>
void expect(bool condition, const Parts&... parts) {
    if (condition) [[likely]]
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
