// What a log looks like: fields, text formats and DataFrames.
#include "bindings.h"

#include "fm2/transform.h"

namespace {

fm2::Transform::Kind transform_kind(const std::string& name) {
    constexpr std::string_view names[]{"",     "log_square",  "quantiles", "weekday",
                                       "hour", "interpolate", "linear"};  // in the order of the enumeration
    const auto found = std::ranges::find(names, name);
    expect(found != std::end(names), "unknown transform '", name, "'");
    return static_cast<fm2::Transform::Kind>(found - names);
}

void make_field(fm2::Field* self, std::size_t column, const std::string& transform, const std::string& format,
                std::vector<float> boundaries, unsigned hash_bits, const std::optional<fm2::ListFormat>& list, Positions parts,
                bool trees) {
    using Kind = fm2::Transform::Kind;
    expect(hash_bits <= 30, "hash_bits must be at most 30, got ", hash_bits);
    const Kind kind = transform_kind(transform);
    std::optional<fm2::TimeFormat> time;
    if (kind == Kind::weekday || kind == Kind::hour) time.emplace(format);
    new (self) fm2::Field{column, {kind, std::move(boundaries), std::move(time)}, hash_bits, list, std::move(parts), trees};
}

void make_list_format(fm2::ListFormat* self, char separator, const std::string& pooling, std::size_t max_values, bool keep_last,
                      bool weighted, bool empty_is_missing, std::optional<std::size_t> weight_column) {
    constexpr std::string_view names[]{"mean", "sum", "sqrt"};  // in the order of the enumeration
    const auto found = std::ranges::find(names, pooling);
    expect(found != std::end(names), "unknown pooling '", pooling, "'");
    new (self) fm2::ListFormat{separator,    static_cast<fm2::Pooling>(found - names), max_values, keep_last, weighted, empty_is_missing,
                               weight_column};
}

fm2::TextFormat libffm_format(const std::vector<std::string>& fields, const std::vector<std::string>& multivalued,
                              const std::vector<std::string>& weighted) {
    using Libffm = fm2::TextFormat::Libffm;
    fm2::TextFormat format{' ', false, fields.size() + 1, true, {}, {}};
    const auto contains = [](const auto& names, const std::string& name) { return std::ranges::find(names, name) != names.end(); };
    for (const std::string& field : fields) {
        format.libffm_fields.add(field);
        format.libffm_lists.push_back(contains(weighted, field)      ? Libffm::weighted
                                      : contains(multivalued, field) ? Libffm::multivalued
                                                                     : Libffm::single);
    }
    return format;
}

void check_positions(const Positions& positions, std::size_t columns) {
    for (const std::size_t position : positions) expect_index("column", position, columns);
}

}  // namespace

std::vector<fm2::Lists> lists_of(const RowLists& lists, std::size_t fields) {
    if (lists.empty()) return {};
    expect(lists.size() == fields, "expected lists for ", fields, " fields, got ", lists.size());
    std::vector<fm2::Lists> views(fields);
    for (std::size_t f = 0; f < fields; ++f) {
        if (!lists[f]) continue;
        const auto& [offsets, ids, weights] = *lists[f];
        expect(offsets.size() >= 1, "the lists of field ", f, " have no offsets");
        expect(!weights || weights->size() == ids.size(), "the lists of field ", f, " have ", ids.size(), " ids, but ",
               weights ? weights->size() : 0, " weights");
        views[f] = {{offsets.data(), offsets.size()}, {ids.data(), ids.size()}, pointer(weights)};
    }
    return views;
}

std::vector<std::tuple<std::size_t, std::int32_t, std::string, nb::bytes>> list_bad(const std::vector<fm2::BadRow>& bad) {
    constexpr const char* names[]{"columns", "label",        "number",        "time",   "encoding",        "quote",
                                  "item",    "value",        "repeated",      "clicks", "impressions",     "excess",
                                  "weight",  "value_weight", "value_weights", "values", "quoted_separator"};  // as in fm2::Fault
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
    nb::class_<fm2::ListFormat>(module, "ListFormat", "How the cells of a multi-valued field are read.")
        .def("__init__", &make_list_format, "separator"_a = '|', "pooling"_a = "mean", "max_values"_a = 0, "keep_last"_a = false,
             "weighted"_a = false, "empty_is_missing"_a = false, "weight_column"_a = nb::none());

    nb::class_<fm2::Field>(module, "Field", "How the cells of a column become features.")
        .def("__init__", &make_field, "column"_a, "transform"_a = "", "format"_a = "", "boundaries"_a = std::vector<float>(),
             "hash_bits"_a = 0, "list"_a = nb::none(), "parts"_a = Positions(), "trees"_a = false);

    nb::class_<fm2::TimeFormat>(module, "TimeFormat", "Parses times.")
        .def(nb::init<const std::string&>(), "format"_a)
        .def("parse", &fm2::TimeFormat::parse, "text"_a, "The seconds since 1970, or None if the text does not match the format.");

    nb::class_<fm2::TextFormat>(module, "TextFormat", "How text is split into cells.")
        .def(
            "__init__",
            [](fm2::TextFormat* self, char separator, bool quotes, std::size_t columns) {
                new (self) fm2::TextFormat{separator, quotes, columns, false, {}, {}};
            },
            "separator"_a, "quotes"_a, "columns"_a)
        .def_static("libffm", &libffm_format, "fields"_a, "multivalued"_a = std::vector<std::string>(),
                    "weighted"_a = std::vector<std::string>(),
                    "The libffm format: a column for the label, then one for each of these fields. Multi-valued and weighted fields may "
                    "repeat; the features of the latter have weights.");

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
