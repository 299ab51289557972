// Compiled models: writing feature rows, opening models, scoring rows.
#include <chrono>

#include "bindings.h"
#include "python_rows.h"

namespace {

std::span<const std::byte> view(const Bytes& bytes) { return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}; }

fm2::Dtype checked_dtype(int dtype) {
    expect(dtype >= 0 && dtype <= 2, "dtype must be 0, 1 or 2, got ", dtype);
    return static_cast<fm2::Dtype>(dtype);
}

float pack_rows(int dtype, const Maybe<const float, 2>& first, const Maybe<const float, 2>& second, const ConstFloats& linear,
                const Array<std::uint8_t, 1>& out, std::size_t threads) {
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

nb::bytes model_header(std::uint32_t sections, const Bytes& body, std::size_t threads) {
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

// Scores rows, with the GIL.
void score_rows(const Compiled& model, const fm2::Kernels& kernels, const fm2::Rows& rows, float* logits, std::size_t threads) {
    if (!model.scorer.onnx_network()) return model.scorer.score(kernels, rows, logits, threads);
    model.scorer.format().check_columns(rows);
    score_in_blocks(model, rows.count, logits, [&](std::size_t begin, std::size_t end, float* embeddings, float* block) {
        model.scorer.embed(kernels, fm2::rows_between(rows, begin, end), embeddings, block, threads);
    });
}

float predict_one(const Compiled& model, nb::handle row) {
    static thread_local std::unique_ptr<fm2::RowBuffer> thread_rows;
    std::unique_ptr<fm2::RowBuffer> rows = take_buffer(thread_rows);
    rows->start(model.scorer, 1);
    encode_dict(model.encoder.encoder(), model.columns, row.ptr(), rows->row(0), rows->lists());
    float logit;
    score_rows(model, fm2::kernels(), rows->view(model.scorer), &logit, 1);
    const fm2::Calibration& calibration = model.scorer.calibration();
    const float probability = calibration.probability(logit, calibration.shift(rows->row(0)));
    thread_rows = std::move(rows);
    return probability;
}

OwnedLists encode_rows(const Compiled& model, const nb::typed<nb::list, nb::object>& rows, const Ids& ids) {
    std::vector<fm2::ListBuffer> lists(model.scorer.fields());
    encode_dicts(model.encoder.encoder(), model.columns, rows, ids, lists);
    return to_numpy(model.encoder.encoder(), std::move(lists));
}

// A column without a position is missing in all rows.
OwnedLists encode_table(const Compiled& model, const fm2::ArrowReader& table, const std::vector<std::optional<std::size_t>>& positions,
                        std::size_t threads, const Ids& ids) {
    expect(positions.size() == model.columns.size(), "encode: there must be one position per column");
    Positions checked;
    for (const std::optional<std::size_t> position : positions) {
        expect(!position || *position < table.names().size(), "encode: there is no column at position ", position.value_or(0));
        checked.push_back(position.value_or(fm2::ArrowReader::no_column));
    }
    expect_shape("encode", "ids", ids, table.rows(), model.scorer.fields());
    std::vector<fm2::ListBuffer> lists(model.scorer.fields());
    {
        nb::gil_scoped_release release;
        model.encoder.encoder().encode(table, 0, table.rows(), checked, threads, ids.data(), lists);
    }
    return to_numpy(model.encoder.encoder(), std::move(lists));
}

void score(const Compiled& model, const ConstIds& ids, const Floats& logits, std::size_t threads, const std::string& level,
           const RowLists& lists) {
    expect_shape("score", "ids", ids, logits.size(), model.scorer.fields());
    const std::vector<fm2::Lists> views = lists_of(lists, ids.shape(1));
    const fm2::Rows rows{ids.data(), ids.shape(0), ids.shape(1), views};
    if (model.scorer.onnx_network()) return score_rows(model, kernels_of(level), rows, logits.data(), threads);
    nb::gil_scoped_release release;
    model.scorer.score(kernels_of(level), rows, logits.data(), threads);
}

// Scores each row on its own, on this thread, and writes how long that took.
void measure_rows(const Compiled& model, const ConstIds& ids, const Floats& nanoseconds, const RowLists& lists) {
    expect_shape("measure_rows", "ids", ids, nanoseconds.size(), model.scorer.fields());
    const std::vector<fm2::Lists> views = lists_of(lists, ids.shape(1));
    const fm2::Rows rows{ids.data(), ids.shape(0), ids.shape(1), views};
    std::optional<nb::gil_scoped_release> release;
    if (!model.scorer.onnx_network()) release.emplace();
    using Clock = std::chrono::steady_clock;
    for (std::size_t r = 0; r < rows.count; ++r) {
        float logit;
        const Clock::time_point begin = Clock::now();
        score_rows(model, fm2::kernels(), fm2::rows_between(rows, r, r + 1), &logit, 1);
        nanoseconds.data()[r] = std::chrono::duration<float, std::nano>(Clock::now() - begin).count();
    }
}

using ValueTerms = std::tuple<std::size_t, std::int32_t, float, double, double>;  // as in fm2::ValueTerms

std::tuple<double, std::vector<double>, std::vector<double>, std::vector<ValueTerms>> explain(const Compiled& model, const Numbers& ids,
                                                                                              const RowLists& lists) {
    expect_size("explain", "ids", ids, model.scorer.fields());
    const std::vector<fm2::Lists> views = lists_of(lists, ids.size());
    fm2::Explanation explanation = fm2::explain(fm2::kernels(), model.scorer, {ids.data(), 1, ids.size(), views});
    std::vector<ValueTerms> values;
    for (const auto& [field, id, weight, linear, pairs] : explanation.values) values.emplace_back(field, id, weight, linear, pairs);
    return {explanation.bias, std::move(explanation.fields), std::move(explanation.pairs), std::move(values)};
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
    nb::class_<Compiled>(module, "Compiled", "A compiled model, mapped into memory. Any number of threads may use it.")
        .def_prop_ro(
            "sizes",
            [](const Compiled& model) { return std::vector<std::int32_t>(model.scorer.sizes().begin(), model.scorer.sizes().end()); })
        .def_prop_ro("checksum", [](const Compiled& model) { return std::to_string(model.scorer.file().checksum()); })
        .def_prop_ro("columns", [](const Compiled& model) { return model.encoder.columns(); })
        .def_prop_ro(
            "parts",
            [](const Compiled& model) {
                std::vector<std::vector<std::size_t>> parts(model.scorer.fields());
                for (std::size_t f = 0; f < parts.size(); ++f) parts[f] = model.encoder.encoder().field(f).parts;
                return parts;
            },
            "The fields that each derived field follows from; other fields have none.")
        .def("encode_rows", &encode_rows, "rows"_a, "ids"_a.noconvert(), "Write the ids of dicts of values, and return their lists.")
        .def("encode_table", &encode_table, "table"_a, "positions"_a, "threads"_a, "ids"_a.noconvert(),
             "Write the ids of a table's batch, and return its lists. The position after the last column has missing cells.")
        .def("explain", &explain, "ids"_a.noconvert(), "lists"_a = RowLists(),
             "Return the bias and the contributions of fields, of pairs of fields and of the values of lists to a row's logit.")
        .def_prop_ro("lists",
                     [](const Compiled& model) { return std::vector<bool>(model.scorer.lists().begin(), model.scorer.lists().end()); })
        .def("measure_rows", &measure_rows, "ids"_a.noconvert(), "nanoseconds"_a.noconvert(), "lists"_a = RowLists(),
             "Write how long it takes to score each row on its own.")
        .def("predict_one", &predict_one, "row"_a, "Return the click probability of a dict of values.")
        .def("section", &section, "name"_a, "Return the bytes of a section of the file.")
        .def(
            "map_section",
            [](const nb::object& model, const std::string& name) {
                const std::span<const std::byte> bytes = nb::cast<const Compiled&>(model).scorer.file().bytes(name);
                return nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>(bytes.data(), {bytes.size()}, model);
            },
            nb::sig("def map_section(self, name: str) -> NDArray[numpy.uint8]"), "name"_a,
            "Return the bytes of a section as a read-only array, without a copy.")
        .def(
            "prefault", [](const Compiled& model) { model.scorer.file().prefault(); }, nb::call_guard<nb::gil_scoped_release>(),
            "Read all pages of the file into memory.")
        .def(
            "forget", [](const Compiled& model) { model.scorer.file().forget(); }, nb::call_guard<nb::gil_scoped_release>(),
            "Drop the file's pages from this process, so that closing it is quick.")
        .def(
            "has_section", [](const Compiled& model, const std::string& name) { return model.scorer.file().has(name); }, "name"_a,
            "Return whether the file has a section.")
        .def("score", &score, "ids"_a.noconvert(), "logits"_a.noconvert(), "threads"_a = 0, "level"_a = "", "lists"_a = RowLists(),
             "Write the logits of encoded rows.");
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
