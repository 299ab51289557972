// The tensors of an Open Inference Protocol request: https://github.com/kserve/open-inference-protocol and its binary extension.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fm2/json.h"

namespace fm2 {

struct Datatype {
    enum class Kind : std::uint8_t { bytes, boolean, integer, unsigned_integer, floating, brain_floating };

    const char* name;
    Kind kind;
    std::size_t size;  // of an element in bytes; 0 if it differs
};

// Returns a datatype; throws RequestError if there is no such one.
const Datatype& find_datatype(std::string_view name);

struct Tensor {
    std::string_view name;
    const Datatype* datatype = nullptr;
    std::array<std::size_t, 2> shape{};
    std::size_t dimensions = 0;

    std::size_t rows() const { return shape[0]; }
    std::size_t width() const { return dimensions > 1 ? shape[1] : 1; }
    std::size_t count() const { return rows() * width(); }
    std::string shape_text() const;
};

// The text of the next element; see fm2/value_text.h. null is missing. Throws RequestError if the datatype does not have the value.
std::string_view read_element(JsonReader& json, const Datatype& datatype, TextArena& arena);
std::int64_t read_integer(JsonReader& json, const Datatype& datatype);

// Reads JSON data that is flat or nested like the shape; calls read() at each element.
template <class Read>
void read_data(JsonReader& json, const Tensor& tensor, const Read& read) {
    std::size_t count = 0;
    const auto element = [&] {
        if (count == tensor.count()) refuse(reason::tensor, "more elements than the shape ", tensor.shape_text(), " has");
        try {
            read();
        } catch (RequestError& error) {
            if (error.reason != reason::json) error.prefix("element " + std::to_string(count));
            throw;
        }
        ++count;
    };
    bool nested = false;
    const std::size_t outer = json.array([&](std::size_t index) {
        if (!index) nested = json.peek() == '[';
        if (!nested) return element();
        if (tensor.dimensions < 2) refuse(reason::tensor, "data is nested, but the shape is ", tensor.shape_text());
        const std::size_t inner = json.array([&](std::size_t) { element(); });
        if (inner != tensor.width())
            refuse(reason::tensor, "expected ", tensor.width(), " elements in list ", index, " of the shape ", tensor.shape_text(),
                   ", got ", inner);
    });
    if (nested && outer != tensor.rows())
        refuse(reason::tensor, "expected ", tensor.rows(), " lists for the shape ", tensor.shape_text(), ", got ", outer);
    if (count != tensor.count() && !(outer == tensor.rows() && nested))
        refuse(reason::tensor, "expected ", tensor.count(), " elements for the shape ", tensor.shape_text(), ", got ", count);
}

// The elements of a tensor in little-endian binary form.
class BinaryElements {
public:
    // Throws RequestError if the size does not match; that of BYTES is checked element by element.
    BinaryElements(const Tensor& tensor, std::string_view data);

    std::string_view text(TextArena& arena);  // of the next element
    std::int64_t integer();
    void finish() const;  // checks that no bytes are left

private:
    template <class T>
    T load();
    double floating();

    const Tensor& tensor_;
    std::string_view left_;
    std::size_t index_ = 0;
};

}  // namespace fm2
