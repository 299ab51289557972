// Compiled models: writing feature rows, opening models, scoring rows.
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
using ConstBytes = Array<const std::uint8_t, 1>;

std::span<const std::byte> view(const ConstBytes& bytes) { return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}; }

fm2::Dtype checked_dtype(int dtype) {
    expect(dtype >= 0 && dtype <= 2, "dtype must be 0, 1 or 2, got ", dtype);
    return static_cast<fm2::Dtype>(dtype);
}

float pack_rows(int dtype, const Maybe<const float, 2>& first, const Maybe<const float, 2>& second, const Array<const float, 1>& linear,
                const Bytes& out, std::size_t threads) {
    const fm2::Dtype type = checked_dtype(dtype);
    const std::size_t rows = linear.size();
    expect(!first || first->shape(0) == rows, "pack_rows: `first` must have one entry per row");
    expect(!second || second->shape(0) == rows, "pack_rows: `second` must have one entry per row");
    const fm2::RowLayout layout(type, first ? first->shape(1) : 0, second ? second->shape(1) : 0);
    expect(out.size() == rows * layout.stride, "pack_rows: `out` must have ", rows * layout.stride, " bytes");
    nb::gil_scoped_release release;
    return fm2::pack_rows(type, layout, rows, pointer(first), pointer(second), linear.data(), reinterpret_cast<std::byte*>(out.data()),
                          threads);
}

nb::bytes model_header(std::uint32_t sections, const ConstBytes& body, std::size_t threads) {
    std::vector<std::byte> header;
    {
        nb::gil_scoped_release release;
        header = fm2::model_header(sections, view(body), threads);
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
    static thread_local std::vector<std::int32_t> thread_ids;
    std::vector<std::int32_t> ids = std::exchange(thread_ids, {});  // encoding a value may run Python code that predicts another row
    ids.resize(model.scorer.fields());
    encode_row(model, row.ptr(), ids.data());
    float logit;
    model.scorer.score(fm2::kernels(), ids.data(), 1, &logit, 1);
    thread_ids = std::move(ids);
    return fm2::probability(logit);
}

void encode_rows(const Compiled& model, const nb::typed<nb::list, nb::object>& rows, const Array<std::int32_t, 2>& ids) {
    expect(ids.shape(0) == rows.size() && ids.shape(1) == model.scorer.fields(), "encode: ids must have the shape [rows, fields]");
    for (std::size_t r = 0; r < rows.size(); ++r) encode_row(model, nb::handle(rows[r]).ptr(), ids.data() + r * ids.shape(1));
}

void encode_table(const Compiled& model, const fm2::ArrowReader& table, const std::vector<std::size_t>& positions, std::size_t threads,
                  const Array<std::int32_t, 2>& ids) {
    expect(positions.size() == model.columns.size(), "encode: there must be one position per column");
    for (const std::size_t position : positions)
        expect(position < table.names().size(), "encode: there is no column at position ", position);
    expect(ids.shape(0) == table.rows() && ids.shape(1) == model.scorer.fields(), "encode: ids must have the shape [rows, fields]");
    nb::gil_scoped_release release;
    model.encoder.encoder().encode(table, 0, table.rows(), positions, threads, ids.data());
}

void score(const Compiled& model, const Array<const std::int32_t, 2>& ids, const Array<float, 1>& logits, std::size_t threads,
           const std::string& level) {
    const fm2::Scorer& scorer = model.scorer;
    expect(ids.shape(1) == scorer.fields(), "expected ids of ", scorer.fields(), " fields, got ", ids.shape(1));
    expect(logits.size() == ids.shape(0), "score: `logits` must have one entry per row");
    const fm2::Kernels& kernels = kernels_of(level);
    nb::gil_scoped_release release;
    scorer.score(kernels, ids.data(), ids.shape(0), logits.data(), threads);
}

// Scores each row on its own, on this thread, and writes how long that took.
void measure_rows(const Compiled& model, const Array<const std::int32_t, 2>& ids, const Array<float, 1>& nanoseconds) {
    expect(ids.shape(1) == model.scorer.fields(), "expected ids of ", model.scorer.fields(), " fields, got ", ids.shape(1));
    expect(nanoseconds.size() == ids.shape(0), "measure_rows: `nanoseconds` must have one entry per row");
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
    expect(ids.size() == model.scorer.fields(), "expected ids of ", model.scorer.fields(), " fields, got ", ids.size());
    fm2::Explanation explanation = fm2::explain(fm2::kernels(), model.scorer, ids.data());
    return {explanation.bias, std::move(explanation.fields), std::move(explanation.pairs)};
}

nb::bytes table_slots(const ConstBytes& bytes, const Array<const std::uint64_t, 1>& ends) {
    const fm2::StringIndex table =
        fm2::make_string_index({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, {ends.data(), ends.size()});
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
    module.def(
        "row_bytes",
        [](int dtype, std::size_t first, std::size_t second) { return fm2::RowLayout(checked_dtype(dtype), first, second).stride; },
        "dtype"_a, "first"_a, "second"_a, "Return the bytes of a feature row of two parts.");
    module.def("pack_rows", pack_rows, "dtype"_a, "first"_a.noconvert().none(), "second"_a.noconvert().none(), "linear"_a.noconvert(),
               "out"_a.noconvert(), "threads"_a = 0, "Write feature rows and return the largest rounding error.");
    module.def("model_header", model_header, "sections"_a, "body"_a.noconvert(), "threads"_a = 0,
               "Return the header of a model file whose remaining bytes are `body`.");
    module.def("table_slots", table_slots, "bytes"_a.noconvert(), "ends"_a.noconvert(), "Return the slots of a vocabulary's hash table.");
    nb::class_<Compiled>(module, "Compiled", "A compiled model, mapped into memory. Any number of threads may use it.")
        .def_prop_ro(
            "sizes",
            [](const Compiled& model) { return std::vector<std::int32_t>(model.scorer.sizes().begin(), model.scorer.sizes().end()); })
        .def_prop_ro("checksum", [](const Compiled& model) { return std::to_string(model.scorer.file().checksum()); })
        .def_prop_ro("columns", [](const Compiled& model) { return model.encoder.columns(); })
        .def("encode_rows", &encode_rows, "rows"_a, "ids"_a.noconvert(), "Write the ids of dicts of values.")
        .def("encode_table", &encode_table, "table"_a, "positions"_a, "threads"_a, "ids"_a.noconvert(), "Write the ids of a table's batch.")
        .def("explain", &explain, "ids"_a.noconvert(),
             "Return the bias and the contributions of fields and of pairs of fields to a row's logit.")
        .def("measure_rows", &measure_rows, "ids"_a.noconvert(), "nanoseconds"_a.noconvert(),
             "Write how long it takes to score each row on its own.")
        .def("predict_one", &predict_one, "row"_a, "Return the click probability of a dict of values.")
        .def("section", &section, "name"_a, "Return the bytes of a section of the file.")
        .def("score", &score, "ids"_a.noconvert(), "logits"_a.noconvert(), "threads"_a = 0, "level"_a = "",
             "Write the logits of rows of ids.");
    module.def(
        "model_sections",
        [](const std::string& path, std::size_t threads) {
            const fm2::ModelFile file(path, true, threads);
            std::vector<std::tuple<std::string, std::size_t, std::size_t>> sections;
            for (const std::string& name : file.names()) sections.emplace_back(name, file.offset(name), file.bytes(name).size());
            return sections;
        },
        "path"_a, "threads"_a = 0, "Return the name, offset and bytes of each section of a file, and verify its checksum.");
    module.def("open_compiled", open_compiled, "path"_a, "verify"_a = true, "threads"_a = 0, "Open a compiled model.");
}
