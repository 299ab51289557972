// Why a request is refused.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fm2 {

// The labels of failures in metrics.
namespace reason {
constexpr const char* json = "invalid_json";
constexpr const char* request = "invalid_request";  // members that are missing, unknown or of the wrong type
constexpr const char* column = "unknown_column";    // or a missing or repeated one
constexpr const char* value = "invalid_value";      // that its column cannot have
constexpr const char* tensor = "invalid_tensor";    // shape, datatype, size or name
constexpr const char* rows = "too_many_rows";
constexpr const char* values = "too_many_values";
constexpr const char* catalog = "unknown_catalog";
constexpr const char* memory = "out_of_memory";
constexpr const char* model = "model_failed";  // not the request
}  // namespace reason

constexpr int bad_request = 400, not_found = 404, too_large = 413, model_failed = 500;

class RequestError : public std::exception {
public:
    RequestError(int status, const char* reason, std::string message, std::string_view column = {})
        : status(status), reason(reason), message_(std::move(message)), column_(column) {}

    // Says where the error is: "rows[3]: ...".
    void prefix(std::string_view place) { message_ = std::string(place) + ": " + message_; }
    void in_column(const std::string& column) {
        prefix("column '" + column + "'");
        column_ = column;
    }
    const char* what() const noexcept override { return message_.c_str(); }
    const std::string& message() const { return message_; }
    const std::string& column() const { return column_; }  // that the error is about; may be empty

    int status;
    const char* reason;

private:
    std::string message_, column_;
};

// Throws a RequestError with the status 400; builds the message from texts and integers.
template <class... Parts>
[[noreturn]] void refuse(const char* reason, const Parts&... parts) {
    std::string message;
    const auto add = [&](const auto& part) {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) message += std::to_string(part);
        else message += part;
    };
    (add(parts), ...);
    throw RequestError(bad_request, reason, std::move(message));
}

// Suggests the closest of the valid names, or lists the first ones.
std::string suggest(std::string_view name, std::span<const std::string> names);

// A text from a request, for messages: in quotes, shortened.
std::string quoted(std::string_view text);

}  // namespace fm2
