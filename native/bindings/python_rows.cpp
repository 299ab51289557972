#include "python_rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace {

constexpr long days_before_1970 = 719163;  // as date.toordinal() counts them
constexpr std::int64_t day_seconds = 86400;

struct Scratch {
    std::vector<PythonText> texts;
    std::vector<std::string_view> cells;
    std::vector<nb::object> collections;    // by column: a list, set, dict or array
    std::vector<fm2::ListCell> values;      // by field: the values of a collection
    std::vector<fm2::ListCell*> collected;  // by field: null if its cell is text
};
thread_local std::unique_ptr<Scratch> thread_scratch;

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

bool is_text_or_number(PyObject* value) {
    return PyUnicode_Check(value) || value == Py_None || PyLong_Check(value) || PyFloat_Check(value) || PyBytes_Check(value);
}

// Whether a value is a list, tuple, set, dict, array, or another collection.
bool is_collection(PyObject* value) {
    if (is_text_or_number(value) || !nb::hasattr(value, "__iter__")) return false;
    return !nb::hasattr(value, "ndim") || nb::cast<int>(nb::handle(value).attr("ndim")) > 0;
}

std::string_view format_item(PythonText& text, PyObject* item) {
    if (is_collection(item)) throw nb::type_error("a value is a nested list; a cell must be a list of values");
    return text.format(item);
}

// Adds an item of a list or a set, which may have a weight after a colon, as in text.
void add_item(std::string_view item, const fm2::ListFormat& format, fm2::ListCell& cell) {
    cell.copy(format.weights_in_cell() ? cell.add_weight_of(item) : item);
}

void read_dict(PyObject* dict, const fm2::ListFormat& format, fm2::ListCell& cell) {
    if (!format.weights_in_cell()) throw nb::type_error("a value is a dict of weights; set weighted = true for its field");
    const auto [first, last] = cell.keep(static_cast<std::size_t>(PyDict_Size(dict)), format);
    PythonText key_text, weight_text;
    PyObject *key, *weight;
    Py_ssize_t position = 0;
    for (std::size_t i = 0; i < last && PyDict_Next(dict, &position, &key, &weight); ++i) {
        if (i < first) continue;
        const nb::object keep_key = nb::borrow(key), keep_weight = nb::borrow(weight);  // formatting may run Python code
        const std::string_view value = format_item(key_text, key);
        cell.copy(value);
        cell.add_weight(value, format_item(weight_text, weight));
    }
    cell.use_copies();
}

// The order of a set depends on the process, so its values are sorted.
void read_set(PyObject* set, const fm2::ListFormat& format, fm2::ListCell& cell) {
    std::vector<std::string> values;
    PythonText text;
    for (const nb::handle item : nb::borrow<nb::object>(set)) values.emplace_back(format_item(text, item.ptr()));
    std::ranges::sort(values);
    const auto [first, last] = cell.keep(values.size(), format);
    for (std::size_t i = first; i < last; ++i) add_item(values[i], format, cell);
    cell.use_copies();
}

void read_sequence(PyObject* sequence, const fm2::ListFormat& format, fm2::ListCell& cell) {
    const Py_ssize_t size = PyObject_Size(sequence);
    if (size < 0) throw nb::python_error();
    const auto [first, last] = cell.keep(static_cast<std::size_t>(size), format);
    PythonText text;
    std::size_t i = 0;
    for (const nb::handle item : nb::borrow<nb::object>(sequence)) {
        if (i >= last) break;
        if (i++ >= first) add_item(format_item(text, item.ptr()), format, cell);
    }
    cell.use_copies();
}

// Whether a value is a mapping other than a dict.
bool is_mapping(PyObject* value) {
    if (PyList_Check(value) || PyTuple_Check(value)) return false;
    const int mapping = PyObject_IsInstance(value, nb::module_::import_("collections.abc").attr("Mapping").ptr());
    if (mapping < 0) throw nb::python_error();
    return mapping;
}

void read_collection(PyObject* value, const fm2::ListFormat& format, fm2::ListCell& cell) {
    cell.clear();
    if (PyDict_Check(value)) read_dict(value, format, cell);
    else if (PyAnySet_Check(value)) read_set(value, format, cell);
    else if (is_mapping(value)) read_dict(as_dict(value).ptr(), format, cell);
    else read_sequence(value, format, cell);
}

// Reads the cell of a column, which is a collection or the text in scratch.cells.
void read_cell(const Scratch& scratch, std::size_t column, std::span<const nb::str> columns, const fm2::ListFormat& format,
               fm2::ListCell& cell) {
    if (!scratch.collections[column].is_valid()) return fm2::split_cell(scratch.cells[column], format, cell);
    try {
        read_collection(scratch.collections[column].ptr(), format, cell);
    } catch (const nb::builtin_exception& error) {
        throw nb::type_error((std::string("column '") + columns[column].c_str() + "': " + error.what()).c_str());
    }
}

// Reads the collections of all fields into scratch.values.
void read_collections(const fm2::Encoder& encoder, std::span<const nb::str> columns, Scratch& scratch) {
    scratch.collected.assign(encoder.fields(), nullptr);
    scratch.values.resize(std::max(scratch.values.size(), encoder.fields()));
    const auto is_collected = [&](std::size_t column) { return scratch.collections[column].is_valid(); };
    for (std::size_t f = 0; f < encoder.fields(); ++f) {
        const fm2::Field& field = encoder.field(f);
        if (field.is_derived()) continue;
        const bool weights_collected = field.list && field.list->weight_column && is_collected(*field.list->weight_column);
        if (!is_collected(field.column) && !weights_collected) continue;
        if (!field.list)
            throw nb::type_error((std::string("column '") + columns[field.column].c_str() + "': a value is a " +
                                  type_name(scratch.collections[field.column].ptr()) + "; only multi-valued fields may have several values")
                                     .c_str());
        scratch.collected[f] = &scratch.values[f];
        read_cell(scratch, field.column, columns, *field.list, scratch.values[f]);
        if (!field.list->weight_column) continue;
        fm2::ListCell weights;
        read_cell(scratch, *field.list->weight_column, columns, *field.list, weights);
        fm2::set_weights(weights, scratch.values[f]);
    }
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

void encode_dict(const fm2::Encoder& encoder, std::span<const nb::str> columns, PyObject* row, std::int32_t* ids,
                 std::vector<fm2::ListBuffer>& lists) {
    const nb::dict values = as_dict(row);
    std::unique_ptr<Scratch> taken = take_buffer(thread_scratch);
    Scratch& scratch = *taken;
    if (scratch.texts.size() < columns.size()) scratch.texts.resize(columns.size());
    scratch.cells.assign(columns.size(), {});
    const bool has_lists = encoder.has_lists();
    if (has_lists) scratch.collections.assign(columns.size(), {});
    scratch.collected.clear();
    bool known = false, collected = false;
    for (std::size_t c = 0; c < columns.size(); ++c) {
        PyObject* value = PyDict_GetItemWithError(values.ptr(), columns[c].ptr());
        if (!value) {
            if (PyErr_Occurred()) throw nb::python_error();
            continue;
        }
        known = true;
        if (has_lists && is_collection(value)) {
            scratch.collections[c] = nb::borrow(value);
            collected = true;
            continue;
        }
        try {
            scratch.cells[c] = scratch.texts[c].format(value);
        } catch (const nb::builtin_exception& error) {
            throw nb::type_error((std::string("column '") + columns[c].c_str() + "': " + error.what()).c_str());
        }
    }
    if (!known) throw nb::key_error("a row has none of the model's columns");
    if (collected) read_collections(encoder, columns, scratch);
    encoder.encode(scratch.cells, ids, lists, scratch.collected);
    scratch.collections.clear();
    for (PythonText& text : scratch.texts) text.clear();  // no Python object may outlive the interpreter in a thread's scratch
    thread_scratch = std::move(taken);
}

void encode_dicts(const fm2::Encoder& encoder, std::span<const nb::str> columns, const nb::typed<nb::list, nb::object>& rows,
                  const Ids& ids, std::vector<fm2::ListBuffer>& lists) {
    expect_shape("encode_rows", "ids", ids, rows.size(), encoder.fields());
    for (std::size_t r = 0; r < rows.size(); ++r)
        encode_dict(encoder, columns, nb::handle(rows[r]).ptr(), ids.data() + r * ids.shape(1), lists);
}
