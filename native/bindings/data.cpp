// What a log looks like: fields, text formats and DataFrames.
#include "bindings.h"

#include "fm2/transform.h"

namespace {

fm2::Transform::Kind transform_kind(const std::string& name) {
    constexpr std::string_view names[]{"", "log_square", "quantiles", "weekday", "hour"};  // in the order of the enumeration
    const auto found = std::ranges::find(names, name);
    expect(found != std::end(names), "unknown transform '", name, "'");
    return static_cast<fm2::Transform::Kind>(found - names);
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

void check_positions(const Positions& positions, std::size_t columns) {
    for (const std::size_t position : positions) expect_index("column", position, columns);
}

}  // namespace

std::vector<std::tuple<std::size_t, std::int32_t, std::string, nb::bytes>> list_bad(const std::vector<fm2::BadRow>& bad) {
    constexpr const char* names[]{"columns", "label", "number", "time",    "encoding",
                                  "quote",   "item",  "value",  "repeated"};  // as in fm2::Fault
    std::vector<std::tuple<std::size_t, std::int32_t, std::string, nb::bytes>> rows;
    for (const fm2::BadRow& row : bad)
        rows.emplace_back(row.row, row.field, names[static_cast<std::size_t>(row.fault)], nb::bytes(row.value.data(), row.value.size()));
    return rows;
}

void check_text(const Bytes& text, const fm2::TextFormat& format, const Positions& positions) {
    check_positions(positions, format.columns);
    if (text.size() > std::numeric_limits<std::int32_t>::max()) throw std::length_error("a piece of text must be smaller than 2 GB");
}

void check_batch(const fm2::ArrowReader& frame, std::size_t first, std::size_t count, const Positions& positions) {
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
