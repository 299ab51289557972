#include "python_rows.h"

#include <cmath>
#include <utility>

namespace {

constexpr long days_before_1970 = 719163;  // as date.toordinal() counts them
constexpr std::int64_t day_seconds = 86400;

struct Scratch {
    std::vector<PythonText> texts;
    std::vector<std::string_view> cells;
};
thread_local Scratch thread_scratch;

std::int64_t seconds_of(nb::object datetime) {
    if (datetime.attr("tzinfo").is_none())
        datetime = datetime.attr("replace")("tzinfo"_a = nb::module_::import_("datetime").attr("timezone").attr("utc"));
    return static_cast<std::int64_t>(std::floor(nb::cast<double>(datetime.attr("replace")("microsecond"_a = 0).attr("timestamp")())));
}

// The stable ABI has no tp_name.
std::string type_name(nb::handle value) { return nb::cast<std::string>(value.type().attr("__name__")); }

// Other mappings become dicts.
nb::dict as_dict(PyObject* row) {
    if (PyDict_Check(row)) return nb::borrow<nb::dict>(row);
    if (!nb::hasattr(row, "keys"))
        throw nb::type_error(("expected a row as a dict of values by column, got '" + type_name(row) + "'").c_str());
    nb::dict copy;
    if (PyDict_Update(copy.ptr(), row) != 0) throw nb::python_error();
    return copy;
}

}  // namespace

std::string_view PythonText::format(PyObject* value) {
    if (PyUnicode_Check(value)) {
        Py_ssize_t size;
        const char* data = PyUnicode_AsUTF8AndSize(value, &size);
        if (!data) throw nb::python_error();
        return {data, static_cast<std::size_t>(size)};
    }
    if (value == Py_None) return {};
    if (PyBool_Check(value)) return fm2::format_bool(value == Py_True);
    if (PyFloat_Check(value)) return fm2::format_number(PyFloat_AsDouble(value), buffer_);
    if (PyLong_Check(value)) {
        int overflow;
        const long long integer = PyLong_AsLongLongAndOverflow(value, &overflow);
        return overflow ? format_converted(nb::steal<nb::object>(PyObject_Str(value))) : fm2::format_number(integer, buffer_);
    }
    if (PyBytes_Check(value)) return {PyBytes_AsString(value), static_cast<std::size_t>(PyBytes_Size(value))};
    return format_object(value);
}

std::string_view PythonText::format_object(PyObject* value) {
    const nb::handle object(value);
    const std::string type = type_name(value);
    if (type == "NaTType" || type == "NAType") return {};  // pandas
    if (type == "float32") return fm2::format_number(static_cast<float>(nb::cast<double>(object.attr("item")())), buffer_);
    if (type == "datetime64") return format_converted(object.attr("astype")("datetime64[s]").attr("item")());
    if (nb::hasattr(object, "item")) return format_converted(object.attr("item")());
    if (nb::hasattr(object, "timestamp")) return fm2::format_time(seconds_of(nb::borrow(object)), buffer_);
    if (nb::hasattr(object, "toordinal"))
        return fm2::format_time((nb::cast<long>(object.attr("toordinal")()) - days_before_1970) * day_seconds, buffer_);
    throw nb::type_error(("a value has the type '" + type + "'; expected text, a number, a bool, bytes or a time").c_str());
}

std::string_view PythonText::format_converted(nb::object value) {
    if (!value.is_valid()) throw nb::python_error();
    if (nb::hasattr(value, "item")) throw nb::type_error("a value is an array; expected text, a number, a bool, bytes or a time");
    converted_ = std::move(value);
    return format(converted_.ptr());
}

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
    const nb::dict values = as_dict(row);
    Scratch scratch = std::exchange(thread_scratch, {});  // formatting a value may run Python code that encodes another row
    if (scratch.texts.size() < columns.size()) scratch.texts.resize(columns.size());
    scratch.cells.assign(columns.size(), {});
    bool known = false;
    for (std::size_t c = 0; c < columns.size(); ++c) {
        PyObject* value = PyDict_GetItemWithError(values.ptr(), columns[c].ptr());
        if (!value) {
            if (PyErr_Occurred()) throw nb::python_error();
            continue;
        }
        known = true;
        try {
            scratch.cells[c] = scratch.texts[c].format(value);
        } catch (const nb::builtin_exception& error) {
            throw nb::type_error((std::string("column '") + columns[c].c_str() + "': " + error.what()).c_str());
        }
    }
    if (!known) throw nb::key_error("a row has none of the model's columns");
    encoder.encode(scratch.cells, ids);
    for (PythonText& text : scratch.texts) text.clear();  // no Python object may outlive the interpreter in a thread's scratch
    thread_scratch = std::move(scratch);
}

void encode_dicts(const fm2::Encoder& encoder, std::span<const nb::str> columns, const nb::typed<nb::list, nb::object>& rows,
                  const Ids& ids) {
    expect_shape("encode_rows", "ids", ids, rows.size(), encoder.fields());
    for (std::size_t r = 0; r < rows.size(); ++r) encode_dict(encoder, columns, nb::handle(rows[r]).ptr(), ids.data() + r * ids.shape(1));
}
