#include "python_rows.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

// The text of a Python value: empty if it is missing; "@" and the seconds since 1970 if it is a time. Valid until the next call.
class PythonText {
public:
    std::string_view format(PyObject* value) {
        if (PyUnicode_Check(value)) {
            Py_ssize_t size;
            const char* data = PyUnicode_AsUTF8AndSize(value, &size);
            if (!data) throw nb::python_error();
            return {data, static_cast<std::size_t>(size)};
        }
        if (value == Py_None) return {};
        if (PyBool_Check(value)) return value == Py_True ? "true" : "false";
        if (PyFloat_Check(value)) return format_float(PyFloat_AS_DOUBLE(value));
        if (PyLong_Check(value)) {
            int overflow;
            const long long integer = PyLong_AsLongLongAndOverflow(value, &overflow);
            return overflow ? format_converted(nb::steal<nb::object>(PyObject_Str(value))) : write(integer);
        }
        if (PyBytes_Check(value)) return {PyBytes_AS_STRING(value), static_cast<std::size_t>(PyBytes_GET_SIZE(value))};
        return format_object(value);
    }
    void clear() { converted_.reset(); }

private:
    template <class T>
    std::string_view write(T value, std::size_t at = 0) {
        char* begin = buffer_.data();
        const char* end = std::to_chars(begin + at, begin + buffer_.size(), value).ptr;
        return {begin, static_cast<std::size_t>(end - begin)};
    }

    // Integers are written as in a table's column: 100000, not 1e+05.
    std::string_view format_float(double value) {
        if (std::isnan(value)) return {};
        if (std::abs(value) < 9e15 && value == std::floor(value)) return write(static_cast<long long>(value));
        return write(value);
    }

    std::string_view format_object(PyObject* value) {
        const nb::handle object(value);
        if (nb::hasattr(object, "item")) return format_converted(object.attr("item")());  // a NumPy scalar
        if (nb::hasattr(object, "timestamp")) return format_time(nb::borrow(object));
        const std::string type = Py_TYPE(value)->tp_name;
        throw nb::type_error(("a value has the type '" + type + "'; expected text, a number, a bool, bytes or a time").c_str());
    }

    // Times without a time zone are UTC.
    std::string_view format_time(nb::object time) {
        if (time.attr("tzinfo").is_none()) time = time.attr("replace")("tzinfo"_a = nb::module_::import_("datetime").attr("timezone").attr("utc"));
        buffer_[0] = '@';
        return write(static_cast<long long>(std::floor(nb::cast<double>(time.attr("timestamp")()))), 1);
    }

    std::string_view format_converted(nb::object value) {
        if (!value.is_valid()) throw nb::python_error();
        if (nb::hasattr(value, "item")) throw nb::type_error("a value is an array; expected text, a number, a bool, bytes or a time");
        converted_ = std::move(value);
        return format(converted_.ptr());
    }

    std::array<char, 32> buffer_;
    nb::object converted_;  // owns the text of a value that had to be converted
};

struct Scratch {
    std::vector<PythonText> texts;
    std::vector<std::string_view> cells;
};
thread_local Scratch thread_scratch;

}  // namespace

std::vector<nb::str> intern_names(const std::vector<std::string>& names) {
    std::vector<nb::str> interned;
    for (const std::string& name : names) {
        PyObject* text = PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
        if (!text) throw nb::python_error();
        PyUnicode_InternInPlace(&text);
        interned.push_back(nb::steal<nb::str>(text));
    }
    return interned;
}

void encode_dict(const fm2::Encoder& encoder, std::span<const nb::str> columns, PyObject* row, std::int32_t* ids) {
    if (!PyDict_Check(row))
        throw nb::type_error(("expected a row as a dict of values by column, got '" + std::string(Py_TYPE(row)->tp_name) + "'").c_str());
    Scratch scratch = std::exchange(thread_scratch, {});  // formatting a value may run Python code that encodes another row
    if (scratch.texts.size() < columns.size()) scratch.texts.resize(columns.size());
    scratch.cells.assign(columns.size(), {});
    bool known = false;
    for (std::size_t c = 0; c < columns.size(); ++c) {
        PyObject* value = PyDict_GetItemWithError(row, columns[c].ptr());
        if (!value) {
            if (PyErr_Occurred()) throw nb::python_error();
            continue;
        }
        known = true;
        scratch.cells[c] = scratch.texts[c].format(value);
    }
    if (!known) throw nb::key_error("a row has none of the model's columns");
    encoder.encode(scratch.cells, ids);
    for (PythonText& text : scratch.texts) text.clear();  // no Python object may outlive the interpreter in a thread's scratch
    thread_scratch = std::move(scratch);
}
