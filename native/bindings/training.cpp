// Embedding tables: looking batches up in them, and moving them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "arrays.h"
#include "fm2/embedding.h"
#include "fm2/loss.h"
#include "topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Order = std::optional<std::variant<Array<const std::int32_t, 1>, Array<const std::int64_t, 1>>>;

template <class Array>
bool has_shape(const Array& array, std::size_t rows, std::size_t columns) {
    return array.shape(0) == rows && array.shape(1) == columns;
}

void check_step(std::int64_t step) {
    expect(step >= 1 && step <= std::numeric_limits<std::int32_t>::max(), "step: a number from 1 to 2^31 - 1");
}

// A table and the arrays it lives in.
struct Table {
    fm2::Layout layout;
    Array<float, 1> weights;
    std::vector<Array<float, 1>> state;
    Maybe<const float, 1> l2_scale;
    Maybe<float, 1> average;
    Maybe<std::int32_t, 1> touched;
    float decay;

    void check() const {
        const auto floats = static_cast<std::size_t>(layout.floats), features = static_cast<std::size_t>(layout.features);
        expect(weights.size() == floats, "table: the layout asks for ", floats, " weights");
        expect(state.size() <= 2, "table: an optimizer remembers two arrays at most");
        for (const auto& array : state) expect(array.size() == floats, "table: state is as long as weights");
        expect(!l2_scale || l2_scale->size() == features, "table: l2_scale has an entry for every feature");
        expect(!average || average->size() == floats, "table: average is as long as weights");
        expect(!touched || touched->size() == features, "table: touched has an entry for every feature");
        expect(average.has_value() == touched.has_value(), "table: average and touched come together");
        expect(decay >= 0 && decay < 1, "table: decay is at least 0 and below 1");
    }

    fm2::Embeddings view() const {
        fm2::Embeddings view{&layout, weights.data(), {}, pointer(l2_scale), pointer(average), pointer(touched), decay};
        for (std::size_t i = 0; i < state.size(); ++i) view.state[i] = state[i].data();
        return view;
    }

    fm2::Embeddings view(const std::string& operation, const fm2::Minibatch& batch) const {
        expect(batch.sizes() == layout.size, operation + ": the batch and the table have fields of other sizes");
        return view();
    }

    bool is_linear() const { return layout.equal_dims && layout.dim[0] == 1; }
    std::size_t width() const { return static_cast<std::size_t>(layout.width); }
    std::size_t dim() const { return static_cast<std::size_t>(layout.dim[0]); }
};

fm2::Mask mask_of(const std::optional<fm2::Dropout>& dropout, std::int64_t step) {
    return dropout ? fm2::Mask(*dropout, static_cast<std::uint64_t>(step)) : fm2::Mask();
}

// A table's gradient and the rule that follows it.
struct Update {
    std::shared_ptr<Table> table;
    fm2::Optimizer optimizer;
    Maybe<const float, 2> rows;
    Maybe<const float, 1> logits;
    Maybe<const float, 2> sums;
    Maybe<const float, 1> signs;
    std::optional<fm2::Dropout> dropout;

    fm2::Update view(const fm2::Minibatch& batch, std::int64_t step) const {
        optimizer.check();
        expect(table->state.size() == optimizer.states(),
               "update: the rule remembers " + std::to_string(optimizer.states()) + " arrays, the table has " +
                   std::to_string(table->state.size()));
        expect(rows || logits, "update: a gradient is given by rows, by logits, or by both");
        expect(!dropout || rows, "update: dropout is for gathered rows");
        expect(!sums || (logits && !rows && table->layout.equal_dims), "update: sums go with logits, and equal dimensions");
        expect(!signs || (sums && signs->size() == table->dim()), "update: signs go with sums, one for each of the table's dimension");
        expect(rows || sums || table->is_linear(), "update: logits alone are for a table of dimension 1");
        expect(!rows || has_shape(*rows, batch.size(), table->width()), "update: rows has the shape of the gathered rows");
        expect(!logits || logits->size() == batch.size(), "update: logits has an entry for every row of the batch");
        expect(!sums || has_shape(*sums, batch.size(), table->dim()), "update: sums has a row of the table's dimension for every row");
        return {table->view("update", batch), optimizer, {pointer(rows), pointer(logits), pointer(sums), pointer(signs), mask_of(dropout, step)}};
    }
};

void load(fm2::Minibatch& batch, const Array<const std::int32_t, 2>& ids, const Order& order, std::size_t threads) {
    expect(ids.shape(1) == batch.fields(), "load: ids needs a column for every field");
    nb::gil_scoped_release release;
    if (!order) return batch.load<std::int32_t>(ids.data(), ids.shape(0), nullptr, ids.shape(0), threads);
    std::visit([&](const auto& rows) { batch.load(ids.data(), ids.shape(0), rows.data(), rows.size(), threads); }, *order);
}

void gather(const Table& table, const fm2::Minibatch& batch, const Array<float, 2>& out, const std::optional<fm2::Dropout>& dropout,
            std::int64_t step, std::size_t threads, const std::string& level) {
    const fm2::Embeddings view = table.view("gather", batch);
    expect(has_shape(out, batch.size(), table.width()),
           "gather: out has a row of " + std::to_string(table.width()) + " for every row of the batch");
    if (dropout) check_step(step);
    const fm2::Mask mask = mask_of(dropout, step);
    const fm2::Kernels& kernels = kernels_of(level);
    nb::gil_scoped_release release;
    fm2::gather(kernels, batch, view, mask, out.data(), threads);
}

void linear_logits(const Table& linear, const fm2::Minibatch& batch, const Array<float, 1>& out, std::size_t threads,
                   const std::string& level) {
    const fm2::Embeddings view = linear.view("linear_logits", batch);
    expect(linear.is_linear(), "linear_logits: the table's dimension is 1");
    expect(out.size() == batch.size(), "linear_logits: out has an entry for every row of the batch");
    const fm2::Kernels& kernels = kernels_of(level);
    nb::gil_scoped_release release;
    fm2::score(kernels, batch, &view, nullptr, nullptr, out.data(), nullptr, threads);
}

void fm_logits(const Table* linear, const Table& factors, const fm2::Minibatch& batch, const Array<float, 2>& sums,
               const Array<float, 1>& out, const Maybe<const float, 1>& signs, std::size_t threads, const std::string& level) {
    expect(!linear || linear->is_linear(), "fm_logits: the linear table's dimension is 1");
    expect(factors.layout.equal_dims, "fm_logits: a factorization machine needs the same dimension for all fields");
    expect(out.size() == batch.size(), "fm_logits: out has an entry for every row of the batch");
    expect(has_shape(sums, batch.size(), factors.dim()), "fm_logits: sums has a row of the table's dimension for every row");
    expect(!signs || signs->size() == factors.dim(), "fm_logits: there is a sign for each of the table's dimension");
    const fm2::Embeddings v = factors.view("fm_logits", batch), w = linear ? linear->view("fm_logits", batch) : fm2::Embeddings();
    const fm2::Kernels& kernels = kernels_of(level);
    nb::gil_scoped_release release;
    fm2::score(kernels, batch, linear ? &w : nullptr, &v, pointer(signs), out.data(), sums.data(), threads);
}

void update(fm2::Minibatch& batch, const std::vector<std::shared_ptr<Update>>& updates, std::int64_t step, std::size_t threads,
            const std::string& level) {
    check_step(step);
    std::vector<fm2::Update> views;
    for (const auto& update : updates) views.push_back(update->view(batch, step));
    const fm2::Kernels& kernels = kernels_of(level);
    nb::gil_scoped_release release;
    fm2::update(kernels, batch, views, step, threads);
}

void finish_average(const Table& table, std::int64_t step, std::size_t threads, const std::string& level) {
    check_step(step);
    expect(table.average.has_value(), "finish_average: the table has no average");
    const fm2::Embeddings view = table.view();
    const fm2::Kernels& kernels = kernels_of(level);
    nb::gil_scoped_release release;
    fm2::finish_average(kernels, view, step, threads);
}

double log_loss(const Array<const float, 1>& logits, const Array<const float, 1>& labels, const Maybe<const float, 1>& weights,
                const Array<float, 1>& slopes, const std::string& level) {
    const std::size_t count = logits.size();
    expect(labels.size() == count && slopes.size() == count && (!weights || weights->size() == count),
           "log_loss: logits, labels, weights and slopes have an entry for every row");
    const fm2::Kernels& kernels = kernels_of(level);
    nb::gil_scoped_release release;
    return fm2::log_loss(kernels, logits.data(), labels.data(), pointer(weights), count, slopes.data());
}

fm2::Optimizer make_optimizer(const std::string& rule, float learning_rate, float epsilon, float beta1, float beta2, float beta,
                              float l1, float l2) {
    using Rule = fm2::Optimizer::Rule;
    expect(rule == "adagrad" || rule == "adam" || rule == "ftrl", "optimizer: '" + rule + "' is not adagrad, adam or ftrl");
    const Rule which = rule == "adagrad" ? Rule::adagrad : rule == "adam" ? Rule::adam : Rule::ftrl;
    const fm2::Optimizer optimizer{which, learning_rate, epsilon, beta1, beta2, beta, l1, l2};
    optimizer.check();
    return optimizer;
}

}  // namespace

void init_training(nb::module_& module) {
    nb::class_<fm2::Layout>(module, "Layout", "Where the features' weights lie in a table's flat buffer.")
        .def("__init__", [](fm2::Layout* self, const Array<const std::int64_t, 1>& offset, const Array<const std::int32_t, 1>& dim,
                            const Array<const std::int32_t, 1>& size) {
                 new (self) fm2::Layout(as_vector(offset), as_vector(dim), as_vector(size));
             },
             "offset"_a.noconvert(), "dim"_a.noconvert(), "size"_a.noconvert())
        .def_ro("floats", &fm2::Layout::floats, "How long the buffer is.")
        .def_ro("features", &fm2::Layout::features, "Of all fields.")
        .def_ro("width", &fm2::Layout::width, "Of a gathered row.");

    nb::class_<Table>(module, "Table", "Weights, what an optimizer remembers of them, and perhaps their average.")
        .def("__init__", [](Table* self, const fm2::Layout& layout, Array<float, 1> weights, std::vector<Array<float, 1>> state,
                            Maybe<const float, 1> l2_scale, Maybe<float, 1> average, Maybe<std::int32_t, 1> touched, float decay) {
                 Table table{layout, std::move(weights), std::move(state), std::move(l2_scale), std::move(average),
                             std::move(touched), decay};
                 table.check();
                 new (self) Table(std::move(table));
             },
             "layout"_a, "weights"_a.noconvert(), "state"_a.noconvert(), "l2_scale"_a.noconvert().none() = nb::none(),
             "average"_a.noconvert().none() = nb::none(), "touched"_a.noconvert().none() = nb::none(), "decay"_a = 0.0f);

    nb::class_<fm2::Optimizer>(module, "Optimizer", "A rule by which summed gradients move the rows of a table.")
        .def("__init__", [](fm2::Optimizer* self, const std::string& rule, float learning_rate, float epsilon, float beta1, float beta2,
                            float beta, float l1, float l2) {
                 new (self) fm2::Optimizer(make_optimizer(rule, learning_rate, epsilon, beta1, beta2, beta, l1, l2));
             },
             "rule"_a, "learning_rate"_a, "epsilon"_a = 1e-8f, "beta1"_a = 0.9f, "beta2"_a = 0.999f, "beta"_a = 1.0f, "l1"_a = 0.0f,
             "l2"_a = 0.0f)
        .def_rw("learning_rate", &fm2::Optimizer::learning_rate)
        .def_prop_ro("states", &fm2::Optimizer::states, "How many arrays, as long as the weights, the rule remembers.");

    nb::class_<fm2::Dropout>(module, "Dropout", "The probabilities with which elements, and fields of a row, are dropped.")
        .def("__init__", [](fm2::Dropout* self, float element, float field, std::uint64_t seed) {
                 const fm2::Dropout dropout{element, field, seed};
                 fm2::Mask(dropout, 0);  // refuses what is not a probability
                 new (self) fm2::Dropout(dropout);
             },
             "element"_a = 0.0f, "field"_a = 0.0f, "seed"_a = 0);

    nb::class_<fm2::Minibatch>(module, "Minibatch", "Some rows of a data set, checked, and ready to be looked up.")
        .def("__init__", [](fm2::Minibatch* self, const Array<const std::int32_t, 1>& size) { new (self) fm2::Minibatch(as_vector(size)); },
             "size"_a.noconvert())
        .def("load", load, "ids"_a.noconvert(), "order"_a.noconvert().none() = nb::none(), "threads"_a = 0,
             "Takes the rows of ids that order names, or all of them.")
        .def("__len__", &fm2::Minibatch::size);

    nb::class_<Update>(module, "Update", "A table's gradient, and the rule that follows it.")
        .def("__init__", [](Update* self, std::shared_ptr<Table> table, const fm2::Optimizer& optimizer, Maybe<const float, 2> rows,
                            Maybe<const float, 1> logits, Maybe<const float, 2> sums, Maybe<const float, 1> signs,
                            std::optional<fm2::Dropout> dropout) {
                 new (self) Update{std::move(table), optimizer, std::move(rows), std::move(logits), std::move(sums), std::move(signs), dropout};
             },
             "table"_a, "optimizer"_a, nb::kw_only(), "rows"_a.noconvert().none() = nb::none(),
             "logits"_a.noconvert().none() = nb::none(), "sums"_a.noconvert().none() = nb::none(),
             "signs"_a.noconvert().none() = nb::none(), "dropout"_a.none() = nb::none());

    module.def("gather", gather, "table"_a, "batch"_a, "out"_a.noconvert(), "dropout"_a.none() = nb::none(), "step"_a = 0,
               "threads"_a = 0, "level"_a = "", "Writes every row's embeddings side by side.");
    module.def("linear_logits", linear_logits, "linear"_a, "batch"_a, "out"_a.noconvert(), "threads"_a = 0, "level"_a = "",
               "Writes every row's sum of linear weights.");
    module.def("fm_logits", fm_logits, "linear"_a.none(), "factors"_a, "batch"_a, "sums"_a.noconvert(), "out"_a.noconvert(),
               "signs"_a.noconvert().none() = nb::none(), "threads"_a = 0, "level"_a = "",
               "Writes the logits of a factorization machine, and the sums that its update needs.");
    module.def("update", update, "batch"_a, "updates"_a, "step"_a, "threads"_a = 0, "level"_a = "",
               "Moves every distinct feature of the batch once, in each table.");
    module.def("finish_average", finish_average, "table"_a, "step"_a, "threads"_a = 0, "level"_a = "",
               "Brings the average of every row up to the given step.");
    module.def("log_loss", log_loss, "logits"_a.noconvert(), "labels"_a.noconvert(), "weights"_a.noconvert().none(),
               "slopes"_a.noconvert(), "level"_a = "", "Returns the mean loss, and writes its gradient in the logits.");
}
