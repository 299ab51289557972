// Rows that are Python dicts.
#pragma once

#include "bindings.h"

#include "fm2/encoder.h"
#include "fm2/value_text.h"

// The text form of a Python value; see fm2/value_text.h. A missing value (None, NaN, NaT, NA) is empty. The text is valid until the next
// call, and while the value exists.
class PythonText {
public:
    std::string_view format(PyObject* value);  // throws nb::type_error for a type that no field can have
    void clear() { converted_.reset(); }

private:
    std::string_view format_object(PyObject* value);
    std::string_view format_converted(nb::object value);

    fm2::TextBuffer buffer_;
    nb::object converted_;  // owns the text of a value that had to be converted
};

// Takes a thread's buffer, or a new one while that is in use: filling it may run Python code that needs another.
template <class T>
std::unique_ptr<T> take_buffer(std::unique_ptr<T>& buffer) {
    return buffer ? std::move(buffer) : std::make_unique<T>();
}

// Column names as interned Python strings, with which dict look-ups are fastest.
std::vector<nb::str> intern_names(const std::vector<std::string>& names);

// Writes the ids of one row, or of several, and appends their lists. A column that is not in a dict is missing. Does not allocate after the
// first rows of a thread.
void encode_dict(const fm2::Encoder& encoder, std::span<const nb::str> columns, PyObject* row, std::int32_t* ids,
                 std::vector<fm2::ListBuffer>& lists);
void encode_dicts(const fm2::Encoder& encoder, std::span<const nb::str> columns, const nb::typed<nb::list, nb::object>& rows,
                  const Ids& ids, std::vector<fm2::ListBuffer>& lists);
