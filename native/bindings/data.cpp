// Reading logs and encoding tables.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "fm2/arrow.h"
#include "fm2/collector.h"
#include "fm2/encoder.h"
#include "fm2/rows.h"
#include "topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <class T, int Dimensions>
using Array = nb::ndarray<T, nb::numpy, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;

// A view of what a native object holds; it keeps that object alive.
template <class T, class... Sizes>
Array<T, sizeof...(Sizes)> view(nb::handle owner, const std::vector<std::remove_const_t<T>>& values, Sizes... sizes) {
    return {const_cast<T*>(values.data()), {static_cast<std::size_t>(sizes)...}, owner};
}

std::string_view as_text(const Array<const std::uint8_t, 1>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class T>
std::vector<std::span<T>> as_spans(const std::vector<Array<T, 1>>& arrays) {
    std::vector<std::span<T>> spans;
    for (const auto& array : arrays) spans.emplace_back(array.data(), array.size());
    return spans;
}

fm2::Field make_field(std::size_t column, const std::string& transform, const std::string& format,
                      std::vector<float> boundaries, unsigned hash_bits) {
    using Kind = fm2::Transform::Kind;
    fm2::Field field{column, {}, hash_bits};
    if (transform == "log_square") field.transform.kind = Kind::log_square;
    else if (transform == "quantiles") field.transform.kind = Kind::quantiles;
    else if (transform == "weekday") field.transform.kind = Kind::weekday;
    else if (transform == "hour") field.transform.kind = Kind::hour;
    else if (!transform.empty()) throw std::invalid_argument("no transform '" + transform + "'");
    if (transform == "weekday" || transform == "hour") field.transform.time.emplace(format);
    field.transform.boundaries = std::move(boundaries);
    if (hash_bits > 30) throw std::invalid_argument("hash_bits is at most 30");
    return field;
}

const char* fault_name(fm2::Fault fault) {
    switch (fault) {
        case fm2::Fault::columns: return "columns";
        case fm2::Fault::label: return "label";
        case fm2::Fault::number: return "number";
        case fm2::Fault::time: return "time";
        case fm2::Fault::encoding: return "encoding";
        case fm2::Fault::quote: return "quote";
        case fm2::Fault::item: return "item";
        case fm2::Fault::value: return "value";
        case fm2::Fault::repeated: return "repeated";
    }
    return "";
}

std::vector<std::tuple<std::size_t, std::int32_t, std::string, nb::bytes>> list_bad(const std::vector<fm2::BadRow>& bad) {
    std::vector<std::tuple<std::size_t, std::int32_t, std::string, nb::bytes>> rows;
    for (const fm2::BadRow& row : bad)
        rows.emplace_back(row.row, row.field, fault_name(row.fault), nb::bytes(row.value.data(), row.value.size()));
    return rows;
}

void check_positions(const std::vector<std::size_t>& positions, std::size_t columns) {
    for (const std::size_t position : positions)
        if (position >= columns) throw std::out_of_range("a column's position lies behind the last column");
}

void check_slice(const fm2::ArrowReader& table, std::size_t first, std::size_t count) {
    if (first > table.rows() || count > table.rows() - first) throw std::out_of_range("rows behind the table's end");
}

void init_collector(nb::module_& module) {
    using fm2::Collector;
    nb::class_<Collector>(module, "Collector", "The first pass over a log: values get provisional numbers.")
        .def("__init__",
             [](Collector* self, std::vector<fm2::Field> fields, std::size_t label, std::optional<std::size_t> time,
                const std::string& format, std::vector<std::string> missing, std::size_t threads) {
                 std::optional<Collector::Time> times;
                 if (time) times.emplace(*time, fm2::TimeFormat(format));
                 new (self) Collector(std::move(fields), label, std::move(times), std::move(missing), threads);
             },
             "fields"_a, "label"_a, "time"_a.none(), "format"_a, "missing"_a, "threads"_a)
        .def("read_text",
             [](Collector& self, Array<const std::uint8_t, 1> text, const fm2::TextFormat& format,
                const std::vector<std::size_t>& positions, bool last) -> const fm2::Block& {
                 check_positions(positions, format.columns);
                 if (text.size() > 0x7fffffff) throw std::length_error("more than 2 GB of text at once");
                 nb::gil_scoped_release release;
                 return self.read(as_text(text), format, positions, last);
             },
             "text"_a, "format"_a, "positions"_a, "last"_a, nb::rv_policy::reference_internal,
             "Reads whole rows of text; the block stays valid until the next read.")
        .def("read_table",
             [](Collector& self, const fm2::ArrowReader& table, std::size_t first, std::size_t count,
                const std::vector<std::size_t>& positions) -> const fm2::Block& {
                 check_positions(positions, table.names().size());
                 check_slice(table, first, count);
                 nb::gil_scoped_release release;
                 return self.read(table, first, count, positions);
             },
             "table"_a, "first"_a, "count"_a, "positions"_a, nb::rv_policy::reference_internal,
             "Reads rows of a table's present batch; the block stays valid until the next read.")
        .def("size", [](const Collector& self, std::size_t field) { return self.table(field).size(); }, "field"_a,
             "How many different values the field has shown.")
        .def("texts",
             [](const Collector& self, std::size_t field, Array<const std::int64_t, 1> numbers) {
                 const fm2::Table& table = self.table(field);
                 std::string bytes;
                 auto* ends = new std::vector<std::uint64_t>;
                 nb::capsule owner(ends, [](void* vector) noexcept { delete static_cast<std::vector<std::uint64_t>*>(vector); });
                 for (std::size_t i = 0; i < numbers.size(); ++i) {
                     if (numbers(i) < 0 || static_cast<std::size_t>(numbers(i)) >= table.size()) throw std::out_of_range("no such number");
                     bytes += table.text(static_cast<std::size_t>(numbers(i)));
                     ends->push_back(bytes.size());
                 }
                 return std::tuple(nb::bytes(bytes.data(), bytes.size()), view<const std::uint64_t>(owner, *ends, ends->size()));
             },
             "field"_a, "numbers"_a, "The texts of these numbers, one behind the other, and where each ends.")
        .def("line", &Collector::line, "row"_a, "On which line of the text last read a row begins, from 0.")
        .def("row_text",
             [](const Collector& self, std::size_t row) {
                 const std::string_view text = self.row_text(row);
                 return nb::bytes(text.data(), text.size());
             },
             "row"_a, "A row of the text last read, as it stands.");
}

}  // namespace

void init_data(nb::module_& module) {
    nb::class_<fm2::Field>(module, "Field", "How a column becomes features.")
        .def("__init__", [](fm2::Field* self, std::size_t column, const std::string& transform, const std::string& format,
                            std::vector<float> boundaries, unsigned hash_bits) {
                 new (self) fm2::Field(make_field(column, transform, format, std::move(boundaries), hash_bits));
             },
             "column"_a, "transform"_a = "", "format"_a = "", "boundaries"_a = std::vector<float>(), "hash_bits"_a = 0);

    nb::class_<fm2::TextFormat>(module, "TextFormat", "How text is cut into cells.")
        .def("__init__", [](fm2::TextFormat* self, char separator, bool quotes, std::size_t columns) {
                 new (self) fm2::TextFormat{separator, quotes, columns, false, {}};
             },
             "separator"_a, "quotes"_a, "columns"_a)
        .def_static("libffm", [](const std::vector<std::string>& fields) {
                        fm2::TextFormat format{' ', false, fields.size() + 1, true, {}};
                        for (const std::string& field : fields) format.libffm_fields.add(field);
                        return format;
                    },
                    "fields"_a, "libffm's own: a column for the label, and one for each of these fields.");

    nb::class_<fm2::Block>(module, "Block", "What was read from one piece of a log.")
        .def_ro("rows", &fm2::Block::rows)
        .def_ro("consumed", &fm2::Block::consumed)
        .def_ro("lines", &fm2::Block::lines)
        .def_prop_ro("numbers", [](nb::handle_t<fm2::Block> self) {
            const auto& block = nb::cast<const fm2::Block&>(self);
            return view<const std::int32_t>(self, block.numbers, block.rows ? block.numbers.size() / block.rows : 0, block.rows);
        })
        .def_prop_ro("labels", [](nb::handle_t<fm2::Block> self) {
            const auto& block = nb::cast<const fm2::Block&>(self);
            return view<const std::uint8_t>(self, block.labels, block.labels.size());
        })
        .def_prop_ro("times", [](nb::handle_t<fm2::Block> self) {
            const auto& block = nb::cast<const fm2::Block&>(self);
            return view<const std::int64_t>(self, block.times, block.times.size());
        })
        .def_prop_ro("bad", [](const fm2::Block& block) { return list_bad(block.bad); }, "(row, field or -1, kind of fault, what stood there) for every row that cannot be used.");

    nb::class_<fm2::ArrowReader>(module, "ArrowReader", "A table's rows, batch after batch.")
        .def("__init__", [](fm2::ArrowReader* self, nb::object table) {
                 nb::capsule capsule = nb::cast<nb::capsule>(table.attr("__arrow_c_stream__")());
                 new (self) fm2::ArrowReader(static_cast<ArrowArrayStream*>(capsule.data("arrow_array_stream")));
             },
             "table"_a)
        .def_prop_ro("names", &fm2::ArrowReader::names)
        .def_prop_ro("rows", &fm2::ArrowReader::rows)
        .def("next", &fm2::ArrowReader::next, "Moves to the next batch; False at the end.");

    init_collector(module);

    using EncodedText = fm2::Encoder::EncodedText;
    nb::class_<EncodedText>(module, "EncodedText", "What was encoded from one piece of text.")
        .def_prop_ro("consumed", [](const EncodedText& self) { return self.block.consumed(); })
        .def_prop_ro("lines", [](const EncodedText& self) { return self.block.lines(); })
        .def_prop_ro("bad", [](const EncodedText& self) { return list_bad(self.block.bad()); })
        .def("line", [](const EncodedText& self, std::size_t row) {
            if (row >= self.block.rows()) throw std::out_of_range("no such row");
            return self.block.line(row);
        }, "row"_a)
        .def("cells", [](const EncodedText& self, std::size_t column) {
            if (column >= self.block.columns()) throw std::out_of_range("no such column");
            const auto cells = self.block.column(column);
            const std::size_t rows = self.block.rows();
            nb::typed<nb::list, nb::str> texts;
            fm2::Batch batch;
            for (std::size_t first = 0; first < rows; first += batch.size) {
                cells->read(first, std::min(rows - first, fm2::Batch::capacity), batch);
                for (std::size_t i = 0; i < batch.size; ++i) {
                    const std::string_view cell = batch.cells[i];
                    const auto size = static_cast<Py_ssize_t>(cell.size());
                    texts.append(nb::steal(PyUnicode_DecodeUTF8(cell.data(), size, "replace")));
                }
            }
            return texts;
        }, "column"_a, "The cells of a column, as text. The text that was encoded must still be there, unchanged.")
        .def_prop_ro("ids", [](nb::handle_t<EncodedText> self) {
            const auto& text = nb::cast<const EncodedText&>(self);
            const std::size_t rows = text.block.rows();
            return view<const std::int32_t>(self, text.ids, rows, rows ? text.ids.size() / rows : 0);
        });

    nb::class_<fm2::Encoder>(module, "Encoder", "From tables to ids, with fixed vocabularies.")
        .def(nb::init<std::vector<fm2::Field>, std::vector<std::string>>(), "fields"_a, "missing"_a)
        .def("set_vocabulary",
             [](fm2::Encoder& self, std::size_t field, Array<const std::uint8_t, 1> bytes, Array<const std::uint64_t, 1> ends) {
                 if (field >= self.fields()) throw std::out_of_range("no such field");
                 self.set_vocabulary(field, as_text(bytes), {ends.data(), ends.size()});
             },
             "field"_a, "bytes"_a, "ends"_a)
        .def("encode_text",
             [](const fm2::Encoder& self, Array<const std::uint8_t, 1> text, const fm2::TextFormat& format,
                const std::vector<std::size_t>& positions, bool last, std::size_t threads) {
                 check_positions(positions, format.columns);
                 if (text.size() > 0x7fffffff) throw std::length_error("more than 2 GB of text at once");
                 auto out = std::make_unique<fm2::Encoder::EncodedText>();
                 nb::gil_scoped_release release;
                 self.encode(as_text(text), format, positions, last, threads, *out);
                 return out;
             },
             "text"_a, "format"_a, "positions"_a, "last"_a, "threads"_a, "Encodes whole rows of text.")
        .def("encode",
             [](const fm2::Encoder& self, const fm2::ArrowReader& table, const std::vector<std::size_t>& positions,
                std::size_t threads, Array<std::int32_t, 2> ids) {
                 check_positions(positions, table.names().size());
                 check_slice(table, 0, ids.shape(0));
                 if (ids.shape(1) != self.fields()) throw std::invalid_argument("ids needs a column for each field");
                 nb::gil_scoped_release release;
                 self.encode(table, 0, ids.shape(0), positions, threads, ids.data());
             },
             "table"_a, "positions"_a, "threads"_a, "ids"_a, "Writes the ids of the table's present batch.");

    module.def("count_numbers",
               [](Array<const std::int32_t, 2> numbers, Array<const std::uint8_t, 1> wanted,
                  const std::vector<Array<std::int64_t, 1>>& counts, std::size_t threads) {
                   if (numbers.shape(0) != counts.size() || numbers.shape(1) != wanted.size())
                       throw std::invalid_argument("count_numbers: the shapes do not fit");
                   nb::gil_scoped_release release;
                   fm2::count_numbers(numbers.data(), wanted.size(), {wanted.data(), wanted.size()}, as_spans(counts), threads);
               },
               "numbers"_a, "wanted"_a, "counts"_a, "threads"_a);
    module.def("write_rows",
               [](Array<const std::int32_t, 2> numbers, Array<const std::int32_t, 1> order,
                  const std::vector<Array<const std::int32_t, 1>>& ids_of, Array<std::int32_t, 2> ids, std::size_t threads) {
                   if (numbers.shape(0) != ids_of.size() || ids.shape(1) != ids_of.size() || ids.shape(0) != order.size())
                       throw std::invalid_argument("write_rows: the shapes do not fit");
                   nb::gil_scoped_release release;
                   fm2::write_rows(numbers.data(), numbers.shape(1), {order.data(), order.size()}, as_spans(ids_of), ids.data(), threads);
               },
               "numbers"_a, "order"_a, "ids_of"_a, "ids"_a, "threads"_a);
}
