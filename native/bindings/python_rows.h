// Rows that are Python dicts.
#pragma once

#include <nanobind/nanobind.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/encoder.h"
#include "fm2/value_text.h"

// The text form of a Python value; see fm2/value_text.h. A missing value (None, NaN, NaT, NA) is empty. The text is valid until the next
// call, and while the value exists.
class PythonText {
public:
    std::string_view format(PyObject* value);  // throws nanobind::type_error for a type that no field can have
    void clear() { converted_.reset(); }

private:
    std::string_view format_object(PyObject* value);
    std::string_view format_converted(nanobind::object value);

    fm2::TextBuffer buffer_;
    nanobind::object converted_;  // owns the text of a value that had to be converted
};

// Column names as interned Python strings, with which dict look-ups are fastest.
std::vector<nanobind::str> intern_names(const std::vector<std::string>& names);

// Writes the ids of a row. A column that is not in the dict is missing. Does not allocate after the first rows of a thread.
void encode_dict(const fm2::Encoder& encoder, std::span<const nanobind::str> columns, PyObject* row, std::int32_t* ids);
