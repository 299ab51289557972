// Compiled models: writing their rows, opening them, scoring ids.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>

#include "arrays.h"
#include "compiled.h"
#include "fm2/arrow.h"
#include "fm2/explanation.h"
#include "fm2/model_file.h"
#include "fm2/plans.h"
#include "python_rows.h"
#include "topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Bytes = Array<std::uint8_t, 1>;
using GivenBytes = Array<const std::uint8_t, 1>;

std::span<const std::byte> view(const GivenBytes& bytes) { return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}; }

float pack_rows(int number, const Maybe<const float, 2>& first, const Maybe<const float, 2>& second, const Array<const float, 1>& linear,
                const Bytes& out, std::size_t threads) {
    expect(number >= 0 && number <= 2, "pack_rows: the number's type is 0, 1 or 2");
    const auto type = static_cast<fm2::Number>(number);
    const std::size_t rows = linear.size();
    expect(!first || first->shape(0) == rows, "pack_rows: there is a first part for every row");
    expect(!second || second->shape(0) == rows, "pack_rows: there is a second part for every row");
    const fm2::RowLayout layout(type, first ? first->shape(1) : 0, second ? second->shape(1) : 0);
    expect(out.size() == rows * layout.stride, "pack_rows: the rows take ", rows * layout.stride, " bytes");
    nb::gil_scoped_release release;
    return fm2::pack_rows(type, layout, rows, pointer(first), pointer(second), linear.data(), reinterpret_cast<std::byte*>(out.data()), threads);
}

nb::bytes model_header(std::uint32_t sections, const GivenBytes& rest, std::size_t threads) {
    std::vector<std::byte> header;
    {
        nb::gil_scoped_release release;
        header = fm2::model_header(sections, view(rest), threads);
    }
    return nb::bytes(header.data(), header.size());
}

std::unique_ptr<Compiled> open_compiled(const std::string& path, bool verify, std::size_t threads) {
    std::unique_ptr<Compiled> model;
    {
        nb::gil_scoped_release release;
        model = std::make_unique<Compiled>(std::make_shared<fm2::ModelFile>(path, verify, threads));
    }
    model->columns = intern_names(model->encoder.columns());
    return model;
}

void encode_row(const Compiled& model, PyObject* row, std::int32_t* ids) { encode_dict(model.encoder.encoder(), model.columns, row, ids); }

float predict_one(const Compiled& model, nb::handle row) {
    std::vector<std::int32_t> ids(model.scorer.fields());
    encode_row(model, row.ptr(), ids.data());
    float logit;
    model.scorer.score(fm2::kernels(), ids.data(), 1, &logit, 1);
    return fm2::probability(logit);
}

void encode_rows(const Compiled& model, const nb::typed<nb::list, nb::object>& rows, const Array<std::int32_t, 2>& ids) {
    expect(ids.shape(0) == rows.size() && ids.shape(1) == model.scorer.fields(), "encode: ids have the shape of rows and fields");
    for (std::size_t r = 0; r < rows.size(); ++r) encode_row(model, nb::handle(rows[r]).ptr(), ids.data() + r * ids.shape(1));
}

void encode_table(const Compiled& model, const fm2::ArrowReader& table, const std::vector<std::size_t>& positions, std::size_t threads,
                  const Array<std::int32_t, 2>& ids) {
    expect(positions.size() == model.columns.size(), "encode: there is a position for every column");
    for (const std::size_t position : positions) expect(position < table.names().size(), "encode: a column's position lies behind the last column");
    expect(ids.shape(0) == table.rows() && ids.shape(1) == model.scorer.fields(), "encode: ids have the shape of rows and fields");
    nb::gil_scoped_release release;
    model.encoder.encoder().encode(table, 0, table.rows(), positions, threads, ids.data());
}

void score(const Compiled& model, const Array<const std::int32_t, 2>& ids, const Array<float, 1>& logits, std::size_t threads,
           const std::string& level) {
    const fm2::Scorer& scorer = model.scorer;
    expect(ids.shape(1) == scorer.fields(), "score: ids have a column for each of the ", scorer.fields(), " fields");
    expect(logits.size() == ids.shape(0), "score: there is a logit for every row");
    const fm2::Kernels& kernels = kernels_of(level);
    nb::gil_scoped_release release;
    scorer.score(kernels, ids.data(), ids.shape(0), logits.data(), threads);
}

// How many nanoseconds each row takes on its own, on this thread.
void time_rows(const Compiled& model, const Array<const std::int32_t, 2>& ids, const Array<float, 1>& nanoseconds) {
    expect(ids.shape(1) == model.scorer.fields() && nanoseconds.size() == ids.shape(0), "time_rows: there is a time for every row of ids");
    nb::gil_scoped_release release;
    using Clock = std::chrono::steady_clock;
    for (std::size_t r = 0; r < ids.shape(0); ++r) {
        float logit;
        const Clock::time_point begin = Clock::now();
        model.scorer.score(fm2::kernels(), ids.data() + r * ids.shape(1), 1, &logit, 1);
        nanoseconds.data()[r] = std::chrono::duration<float, std::nano>(Clock::now() - begin).count();
    }
}

std::tuple<double, std::vector<double>, std::vector<double>> explain(const Compiled& model, const Array<const std::int32_t, 1>& ids) {
    expect(ids.size() == model.scorer.fields(), "explain: a row has ", model.scorer.fields(), " ids");
    fm2::Explanation found = fm2::explain(fm2::kernels(), model.scorer, ids.data());
    return {found.bias, std::move(found.fields), std::move(found.pairs)};
}

nb::bytes table_slots(const GivenBytes& bytes, const Array<const std::uint64_t, 1>& ends) {
    const fm2::StringIndex table = fm2::make_string_index({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, {ends.data(), ends.size()});
    const auto slots = std::as_bytes(table.view().slots);
    return nb::bytes(slots.data(), slots.size());
}

nb::bytes section(const Compiled& model, const std::string& name) {
    const auto bytes = model.scorer.file().bytes(name);
    return nb::bytes(bytes.data(), bytes.size());
}

}  // namespace

void init_engine(nb::module_& module) {
    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const fm2::BadModel& bad) {
            PyErr_SetString(PyExc_OSError, bad.what());
        }
    });
    module.def("row_bytes", [](int number, std::size_t first, std::size_t second) {
                   expect(number >= 0 && number <= 2, "row_bytes: the number's type is 0, 1 or 2");
                   return fm2::RowLayout(static_cast<fm2::Number>(number), first, second).stride;
               },
               "number"_a, "first"_a, "second"_a, "How many bytes a feature's row of two parts takes.");
    module.def("pack_rows", pack_rows, "number"_a, "first"_a.noconvert().none(), "second"_a.noconvert().none(), "linear"_a.noconvert(),
               "out"_a.noconvert(), "threads"_a = 0, "Writes rows of features; gives the largest difference that rounding made.");
    module.def("model_header", model_header, "sections"_a, "rest"_a.noconvert(), "threads"_a = 0,
               "The first bytes of a model file whose other bytes are these.");
    module.def("table_slots", table_slots, "bytes"_a.noconvert(), "ends"_a.noconvert(), "The slots of the table of a vocabulary's values.");
    nb::class_<Compiled>(module, "Compiled", "A compiled model, mapped into memory. Any number of threads may use it.")
        .def_prop_ro("sizes", [](const Compiled& model) { return std::vector<std::int32_t>(model.scorer.sizes().begin(), model.scorer.sizes().end()); })
        .def_prop_ro("checksum", [](const Compiled& model) { return std::to_string(model.scorer.file().checksum()); })
        .def_prop_ro("columns", [](const Compiled& model) { return model.encoder.columns(); })
        .def("encode_rows", &encode_rows, "rows"_a, "ids"_a.noconvert(), "Writes the ids of dicts of values.")
        .def("encode_table", &encode_table, "table"_a, "positions"_a, "threads"_a, "ids"_a.noconvert(), "Writes the ids of a table's batch.")
        .def("explain", &explain, "ids"_a.noconvert(), "The bias, and what fields and pairs of fields add to a row's logit.")
        .def("time_rows", &time_rows, "ids"_a.noconvert(), "nanoseconds"_a.noconvert(), "Writes how long each row takes on its own.")
        .def("predict_one", &predict_one, "row"_a, "The click probability of a dict of values.")
        .def("section", &section, "name"_a, "The bytes of a section of the file.")
        .def("score", &score, "ids"_a.noconvert(), "logits"_a.noconvert(), "threads"_a = 0, "level"_a = "", "Writes the logits of rows of ids.");
    module.def("model_sections", [](const std::string& path, std::size_t threads) {
                   const fm2::ModelFile file(path, true, threads);
                   std::vector<std::tuple<std::string, std::size_t, std::size_t>> sections;
                   for (const std::string& name : file.names()) sections.emplace_back(name, file.offset(name), file.bytes(name).size());
                   return sections;
               },
               "path"_a, "threads"_a = 0, "Name, offset and bytes of a file's sections, whose checksum is compared.");
    module.def("open_compiled", open_compiled, "path"_a, "verify"_a = true, "threads"_a = 0, "Opens a compiled model.");
}
