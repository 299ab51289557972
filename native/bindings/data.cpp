// What a log looks like: fields, text formats and DataFrames.
#include "data.h"

#include <limits>

#include "fm2/fields.h"
#include "topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

fm2::Transform::Kind transform_kind(const std::string& name) {
    using Kind = fm2::Transform::Kind;
    if (name.empty()) return Kind::none;
    if (name == "log_square") return Kind::log_square;
    if (name == "quantiles") return Kind::quantiles;
    if (name == "weekday") return Kind::weekday;
    if (name == "hour") return Kind::hour;
    throw std::invalid_argument("unknown transform '" + name + "'");
}

void make_field(fm2::Field* self, std::size_t column, const std::string& transform, const std::string& format,
                std::vector<float> boundaries, unsigned hash_bits) {
    using Kind = fm2::Transform::Kind;
    expect(hash_bits <= 30, "hash_bits must be at most 30, got ", hash_bits);
    const Kind kind = transform_kind(transform);
    std::optional<fm2::TimeFormat> time;
    if (kind == Kind::weekday || kind == Kind::hour) time.emplace(format);
    new (self) fm2::Field{column, {kind, std::move(boundaries), std::move(time)}, hash_bits};
}

fm2::TextFormat libffm_format(const std::vector<std::string>& fields) {
    fm2::TextFormat format{' ', false, fields.size() + 1, true, {}};
    for (const std::string& field : fields) format.libffm_fields.add(field);
    return format;
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

void check_positions(const std::vector<std::size_t>& positions, std::size_t columns) {
    for (const std::size_t position : positions)
        if (position >= columns) throw std::out_of_range("column " + std::to_string(position) + " is out of range");
}

}  // namespace

std::vector<std::tuple<std::size_t, std::int32_t, std::string, nb::bytes>> list_bad(const std::vector<fm2::BadRow>& bad) {
    std::vector<std::tuple<std::size_t, std::int32_t, std::string, nb::bytes>> rows;
    for (const fm2::BadRow& row : bad)
        rows.emplace_back(row.row, row.field, fault_name(row.fault), nb::bytes(row.value.data(), row.value.size()));
    return rows;
}

void check_text(const Array<const std::uint8_t, 1>& text, const fm2::TextFormat& format, const std::vector<std::size_t>& positions) {
    check_positions(positions, format.columns);
    if (text.size() > std::numeric_limits<std::int32_t>::max()) throw std::length_error("a piece of text must be smaller than 2 GB");
}

void check_batch(const fm2::ArrowReader& frame, std::size_t first, std::size_t count, const std::vector<std::size_t>& positions) {
    check_positions(positions, frame.names().size());
    if (first > frame.rows() || count > frame.rows() - first) throw std::out_of_range("rows beyond the end of the batch");
}

void init_data(nb::module_& module) {
    nb::class_<fm2::Field>(module, "Field", "How the cells of a column become features.")
        .def("__init__", &make_field, "column"_a, "transform"_a = "", "format"_a = "", "boundaries"_a = std::vector<float>(),
             "hash_bits"_a = 0);

    nb::class_<fm2::TextFormat>(module, "TextFormat", "How text is split into cells.")
        .def(
            "__init__",
            [](fm2::TextFormat* self, char separator, bool quotes, std::size_t columns) {
                new (self) fm2::TextFormat{separator, quotes, columns, false, {}};
            },
            "separator"_a, "quotes"_a, "columns"_a)
        .def_static("libffm", &libffm_format, "fields"_a, "The libffm format: a column for the label, then one for each of these fields.");

    nb::class_<fm2::ArrowReader>(module, "ArrowReader", "The rows of a DataFrame, batch by batch.")
        .def(
            "__init__",
            [](fm2::ArrowReader* self, nb::object frame) {
                nb::capsule capsule = nb::cast<nb::capsule>(frame.attr("__arrow_c_stream__")());
                new (self) fm2::ArrowReader(static_cast<ArrowArrayStream*>(capsule.data("arrow_array_stream")));
            },
            "frame"_a)
        .def_prop_ro("names", &fm2::ArrowReader::names)
        .def_prop_ro("rows", &fm2::ArrowReader::rows)
        .def("next", &fm2::ArrowReader::next, "Advances to the next batch; False at the end.");
}
