// Embedding tables: lookups and optimizer steps.
#include <variant>

#include "bindings.h"
#include "embedding_table.h"
#include "fm2/training.h"

namespace {

using Order = std::optional<std::variant<Numbers, Array<const std::int64_t, 1>>>;

void check_step(std::int64_t step) {
    expect(step >= 1 && step <= std::numeric_limits<std::int32_t>::max(), "step must be between 1 and 2^31 - 1, got ", step);
}

fm2::Mask mask_of(const std::optional<fm2::Dropout>& dropout, const fm2::Minibatch& batch, std::int64_t step) {
    expect(!dropout || dropout->rows.empty() || dropout->rows.size() == batch.size(), "dropout: expected the numbers of ", batch.size(),
           " rows, got ", dropout ? dropout->rows.size() : 0);
    return dropout ? fm2::Mask(*dropout, static_cast<std::uint64_t>(step)) : fm2::Mask();
}

// A gradient for a table, and the optimizer that applies it.
struct Update {
    std::shared_ptr<EmbeddingTable> table;
    fm2::Optimizer optimizer;
    Maybe<const float, 2> rows;
    OptionalFloats logits;
    Maybe<const float, 2> sums;
    OptionalFloats signs;
    std::optional<fm2::Dropout> dropout;

    fm2::Update view(const fm2::Minibatch& batch, std::int64_t step) const {
        optimizer.check();
        expect(table->state.size() == optimizer.states(), "update: the optimizer needs ", optimizer.states(),
               " state arrays, but the table has ", table->state.size());
        expect(rows || logits, "update: a gradient requires rows, logits, or both");
        expect(!dropout || rows, "update: dropout requires rows");
        expect(!sums || (logits && !rows && table->layout.equal_dims), "update: sums requires logits, no rows, and equal dimensions");
        expect(!signs || sums, "update: signs requires sums");
        expect(rows || !table->keep_zeros, "update: keep_zeros requires rows");
        expect(rows || sums || table->is_linear(), "update: logits without rows or sums requires a table of dimension 1");
        if (rows) expect_shape("update", "rows", *rows, batch.size(), table->width());
        if (sums) expect_shape("update", "sums", *sums, batch.size(), table->dim());
        expect_size("update", "logits", logits, batch.size());
        expect_size("update", "signs", signs, table->dim());
        const fm2::Gradient gradient{pointer(rows), pointer(logits), pointer(sums), pointer(signs), mask_of(dropout, batch, step)};
        return {table->view("update", batch), optimizer, gradient};
    }
};

void load(fm2::Minibatch& batch, const ConstIds& ids, const RowLists& lists, const Order& order, std::size_t threads,
          const std::optional<fm2::Dropout>& dropout, std::int64_t step) {
    const std::vector<fm2::Lists> views = lists_of(lists, ids.shape(1));
    const fm2::Rows rows{ids.data(), ids.shape(0), ids.shape(1), views};
    fm2::ValueDropout values;
    if (dropout) {
        check_step(step);
        values = {dropout->value, dropout->seed, static_cast<std::uint64_t>(step), dropout->numbers, dropout->rows, dropout->hidden.get()};
    }
    nb::gil_scoped_release release;
    if (!order) return batch.load<std::int32_t>(rows, nullptr, rows.count, threads, values);
    std::visit([&](const auto& chosen) { batch.load(rows, chosen.data(), chosen.size(), threads, values); }, *order);
}

void hide(fm2::Dropout& self, const std::vector<std::optional<Array<const std::uint16_t, 1>>>& probabilities,
          std::vector<std::vector<std::size_t>> parts) {
    auto hidden = std::make_shared<fm2::HiddenFeatures>();
    hidden->parts = std::move(parts);
    for (const auto& of_field : probabilities) {
        hidden->probabilities.emplace_back();
        if (of_field) hidden->probabilities.back().assign(of_field->data(), of_field->data() + of_field->size());
    }
    self.hidden = std::move(hidden);
}

void gather(const EmbeddingTable& table, const fm2::Minibatch& batch, const Array<float, 2>& out,
            const std::optional<fm2::Dropout>& dropout, std::int64_t step, std::size_t threads, const std::string& level) {
    const fm2::Embeddings view = table.view("gather", batch);
    expect_shape("gather", "out", out, batch.size(), table.width());
    if (dropout) check_step(step);
    const fm2::Mask mask = mask_of(dropout, batch, step);
    nb::gil_scoped_release release;
    fm2::gather(kernels_of(level), batch, view, mask, out.data(), threads);
}

void linear_logits(const EmbeddingTable& linear, const fm2::Minibatch& batch, const Floats& out, std::size_t threads,
                   const std::string& level) {
    const fm2::Embeddings view = linear.view("linear_logits", batch);
    expect(linear.is_linear(), "linear_logits: the dimension of the table must be 1");
    expect_size("linear_logits", "out", out, batch.size());
    nb::gil_scoped_release release;
    fm2::score(kernels_of(level), batch, &view, nullptr, nullptr, out.data(), nullptr, threads);
}

void fm_logits(const EmbeddingTable* linear, const EmbeddingTable& factors, const fm2::Minibatch& batch, const Array<float, 2>& sums,
               const Floats& out, const OptionalFloats& signs, std::size_t threads, const std::string& level) {
    expect(!linear || linear->is_linear(), "fm_logits: the dimension of the linear table must be 1");
    expect(factors.layout.equal_dims, "fm_logits: a factorization machine requires the same dimension for all fields");
    expect_size("fm_logits", "out", out, batch.size());
    expect_shape("fm_logits", "sums", sums, batch.size(), factors.dim());
    expect_size("fm_logits", "signs", signs, factors.dim());
    const fm2::Embeddings v = factors.view("fm_logits", batch), w = linear ? linear->view("fm_logits", batch) : fm2::Embeddings();
    nb::gil_scoped_release release;
    fm2::score(kernels_of(level), batch, linear ? &w : nullptr, &v, pointer(signs), out.data(), sums.data(), threads);
}

void update(fm2::Minibatch& batch, const std::vector<std::shared_ptr<Update>>& updates, std::int64_t step, std::size_t threads,
            const std::string& level) {
    check_step(step);
    std::vector<fm2::Update> views;
    for (const auto& update : updates) views.push_back(update->view(batch, step));
    nb::gil_scoped_release release;
    fm2::update(kernels_of(level), batch, views, step, threads);
}

void finish_average(const EmbeddingTable& table, std::int64_t step, std::size_t threads, const std::string& level) {
    check_step(step);
    expect(table.average.has_value(), "finish_average: the table has no moving average");
    const fm2::Embeddings view = table.view();
    nb::gil_scoped_release release;
    fm2::finish_average(kernels_of(level), view, step, threads);
}

double log_loss(const ConstFloats& logits, const ConstFloats& labels, const OptionalFloats& weights, const Floats& gradients,
                const std::string& level, double total) {
    const std::size_t count = logits.size();
    expect_size("log_loss", "labels", labels, count);
    expect_size("log_loss", "weights", weights, count);
    expect_size("log_loss", "slopes", gradients, count);
    nb::gil_scoped_release release;
    return fm2::log_loss(kernels_of(level), logits.data(), labels.data(), pointer(weights), count, gradients.data(), total);
}

void make_optimizer(fm2::Optimizer* self, const std::string& rule, float learning_rate, float epsilon, float beta1, float beta2, float beta,
                    float l1, float l2) {
    using Rule = fm2::Optimizer::Rule;
    const bool known = rule == "adagrad" || rule == "adam" || rule == "ftrl" || rule == "collect";
    expect(known, "optimizer: unknown optimizer '", rule, "'; use adagrad, adam or ftrl");
    const Rule which = rule == "adagrad" ? Rule::adagrad : rule == "adam" ? Rule::adam : rule == "ftrl" ? Rule::ftrl : Rule::collect;
    const fm2::Optimizer optimizer{which, learning_rate, epsilon, beta1, beta2, beta, l1, l2};
    optimizer.check();
    new (self) fm2::Optimizer(optimizer);
}

void define_classes(nb::module_& module) {
    nb::class_<fm2::Layout>(module, "Layout", "The layout of an embedding table in a flat buffer.")
        .def(
            "__init__",
            [](fm2::Layout* self, const Array<const std::int64_t, 1>& offset, const Numbers& dim, const Numbers& size) {
                new (self) fm2::Layout(as_vector(offset), as_vector(dim), as_vector(size));
            },
            "offset"_a.noconvert(), "dim"_a.noconvert(), "size"_a.noconvert())
        .def_ro("floats", &fm2::Layout::floats, "Length of the buffer.")
        .def_ro("features", &fm2::Layout::features, "Number of features of all fields.")
        .def_ro("width", &fm2::Layout::width, "Width of a gathered row.");

    nb::class_<EmbeddingTable>(module, "Table", "Weights, optimizer state and, optionally, the moving average of the weights.")
        .def(
            "__init__",
            [](EmbeddingTable* self, const fm2::Layout& layout, Floats weights, std::vector<Floats> state, OptionalFloats l2_scale,
               Maybe<float, 1> average, Maybe<std::int32_t, 1> touched, float decay, bool keep_zeros) {
                EmbeddingTable table{
                    layout, std::move(weights), std::move(state), std::move(l2_scale), std::move(average), std::move(touched),
                    decay,  keep_zeros};
                table.check();
                new (self) EmbeddingTable(std::move(table));
            },
            "layout"_a, "weights"_a.noconvert(), "state"_a.noconvert(), "l2_scale"_a.noconvert().none() = nb::none(),
            "average"_a.noconvert().none() = nb::none(), "touched"_a.noconvert().none() = nb::none(), "decay"_a = 0.0f,
            "keep_zeros"_a = false);

    nb::class_<fm2::Optimizer>(module, "Optimizer", "An optimizer for embedding tables: adagrad, adam or ftrl.")
        .def("__init__", &make_optimizer, "rule"_a, "learning_rate"_a, "epsilon"_a = 1e-8f, "beta1"_a = 0.9f, "beta2"_a = 0.999f,
             "beta"_a = 1.0f, "l1"_a = 0.0f, "l2"_a = 0.0f)
        .def_rw("learning_rate", &fm2::Optimizer::learning_rate)
        .def_prop_ro("states", &fm2::Optimizer::states, "Number of state arrays, each as long as the weights.");

    nb::class_<fm2::Dropout>(
        module, "Dropout",
        "The probabilities of dropping single elements, whole fields of a row, and values. Values of the fields in numbers are kept.")
        .def(
            "__init__",
            [](fm2::Dropout* self, float element, float field, std::uint64_t seed, float value, std::vector<std::size_t> numbers) {
                const fm2::Dropout dropout{element, field, seed, value, std::move(numbers)};
                dropout.check();
                new (self) fm2::Dropout(dropout);
            },
            "element"_a = 0.0f, "field"_a = 0.0f, "seed"_a = 0, "value"_a = 0.0f, "numbers"_a = std::vector<std::size_t>())
        .def(
            "set_rows",
            [](fm2::Dropout& self, const Array<const std::uint32_t, 1>& rows) { self.rows.assign(rows.data(), rows.data() + rows.size()); },
            "rows"_a, "Sets the numbers of the rows in a larger batch, of which the next batch is a part.")
        .def("hide", &hide, "probabilities"_a, "parts"_a,
             "Lets batches replace features by the unknown one, with a probability for each feature in units of 1 / 65,536, or None. A "
             "field with parts is a cross, which is unknown if one of them is.")
        .def(
            "hide_like", [](fm2::Dropout& self, const fm2::Dropout& other) { self.hidden = other.hidden; }, "other"_a,
            "Hides the same features as another dropout, without a copy of their probabilities.");

    nb::class_<fm2::Minibatch>(module, "Minibatch", "A batch of rows of a dataset, validated and ready for lookups.")
        .def(
            "__init__",
            [](fm2::Minibatch* self, const Numbers& size, bool compacts) { new (self) fm2::Minibatch(as_vector(size), compacts); },
            "size"_a.noconvert(), "compacts"_a = false)
        .def("load", load, "ids"_a.noconvert(), "lists"_a.noconvert() = RowLists(), "order"_a.noconvert().none() = nb::none(),
             "threads"_a = 0, "dropout"_a.none() = nb::none(), "step"_a = 0,
             "Load the rows of ids listed in order, or all of them. Lists are those of multi-valued fields; dropout drops their values.")
        .def("__len__", &fm2::Minibatch::size);

    nb::class_<Update>(module, "Update", "A gradient for a table, and the optimizer that applies it.")
        .def(
            "__init__",
            [](Update* self, std::shared_ptr<EmbeddingTable> table, const fm2::Optimizer& optimizer, Maybe<const float, 2> rows,
               OptionalFloats logits, Maybe<const float, 2> sums, OptionalFloats signs, std::optional<fm2::Dropout> dropout) {
                new (self)
                    Update{std::move(table), optimizer, std::move(rows), std::move(logits), std::move(sums), std::move(signs), dropout};
            },
            "table"_a, "optimizer"_a, nb::kw_only(), "rows"_a.noconvert().none() = nb::none(), "logits"_a.noconvert().none() = nb::none(),
            "sums"_a.noconvert().none() = nb::none(), "signs"_a.noconvert().none() = nb::none(), "dropout"_a.none() = nb::none());
}

void define_functions(nb::module_& module) {
    module.def("gather", gather, "table"_a, "batch"_a, "out"_a.noconvert(), "dropout"_a.none() = nb::none(), "step"_a = 0, "threads"_a = 0,
               "level"_a = "", "Write the concatenated embeddings of every row.");
    module.def("linear_logits", linear_logits, "linear"_a, "batch"_a, "out"_a.noconvert(), "threads"_a = 0, "level"_a = "",
               "Write the sum of the linear weights of every row.");
    module.def("fm_logits", fm_logits, "linear"_a.none(), "factors"_a, "batch"_a, "sums"_a.noconvert(), "out"_a.noconvert(),
               "signs"_a.noconvert().none() = nb::none(), "threads"_a = 0, "level"_a = "",
               "Write the logits of a factorization machine, and the sums that its update needs.");
    module.def("update", update, "batch"_a, "updates"_a, "step"_a, "threads"_a = 0, "level"_a = "",
               "Update every distinct feature of the batch once, in each table.");
    module.def("finish_average", finish_average, "table"_a, "step"_a, "threads"_a = 0, "level"_a = "",
               "Update the moving average of every row to the given step.");
    module.def("log_loss", log_loss, "logits"_a.noconvert(), "labels"_a.noconvert(), "weights"_a.noconvert().none(), "slopes"_a.noconvert(),
               "level"_a = "", "total"_a = 0.0, "Return the mean loss; write its gradient with respect to the logits.");
}

}  // namespace

void init_training(nb::module_& module) {
    define_classes(module);
    define_functions(module);
}
