// Rows of embedding tables that workers exchange.
#include "fm2/sharding.h"
#include "bindings.h"
#include "embedding_table.h"

namespace {

fm2::RowRuns runs_of(const Numbers& fields, const Numbers& counts, const Numbers& features) {
    return {{fields.data(), fields.size()}, {counts.data(), counts.size()}, {features.data(), features.size()}};
}

auto compact(fm2::Minibatch& batch, const Positions& owners, std::size_t workers, std::size_t threads) {
    fm2::Distributed found;
    {
        nb::gil_scoped_release release;
        found = batch.compact(owners, workers, threads);
    }
    return std::make_tuple(to_numpy(std::move(found.counts)), to_numpy(std::move(found.features)), to_numpy(std::move(found.ids)));
}

auto value_ids(const fm2::Minibatch& batch, std::size_t field) {
    expect_index("field", field, batch.fields());
    const std::int32_t* ids = batch.value_ids(field);
    return to_numpy(std::vector<std::int32_t>(ids, ids + batch.count_values(field)));
}

void read_rows(const fm2::Layout& layout, const ConstFloats& buffer, const Numbers& fields, const Numbers& counts, const Numbers& features,
               const Floats& out) {
    const fm2::RowRuns runs = runs_of(fields, counts, features);
    expect_size("read_rows", "buffer", buffer, static_cast<std::size_t>(layout.floats));
    expect_size("read_rows", "out", out, runs.check(layout));
    nb::gil_scoped_release release;
    fm2::read_rows(layout, buffer.data(), runs, out.data());
}

void write_rows(const fm2::Layout& layout, const Floats& buffer, const Numbers& fields, const Numbers& counts, const Numbers& features,
                const ConstFloats& rows) {
    const fm2::RowRuns runs = runs_of(fields, counts, features);
    expect_size("write_rows", "buffer", buffer, static_cast<std::size_t>(layout.floats));
    expect_size("write_rows", "rows", rows, runs.check(layout));
    nb::gil_scoped_release release;
    fm2::write_rows(layout, runs, rows.data(), buffer.data());
}

auto split_rows(const Numbers& counts, const Numbers& features, const Array<const std::uint8_t, 1>& marks) {
    std::int64_t total = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        fm2::expect(counts.data()[i] >= 0, "split_rows: a count is negative");
        total += counts.data()[i];
    }
    fm2::expect(total == static_cast<std::int64_t>(features.size()), "split_rows: the counts do not match the number of features");
    expect_size("split_rows", "marks", marks, features.size());
    auto [unmarked, marked] = fm2::split_rows({{}, {counts.data(), counts.size()}, {features.data(), features.size()}}, marks.data());
    return std::make_tuple(to_numpy(std::move(unmarked.counts)), to_numpy(std::move(unmarked.features)), to_numpy(std::move(marked.counts)),
                           to_numpy(std::move(marked.features)));
}

// A table whose rows are updated by gradients of other workers.
class Shard {
public:
    explicit Shard(std::shared_ptr<EmbeddingTable> table) : table_(std::move(table)), updater_(table_->layout) {}

    void update(const fm2::Optimizer& optimizer, const Numbers& fields, const Numbers& counts, const Numbers& features,
                const ConstFloats& gradients, const Array<const std::int64_t, 1>& begins, std::int64_t step, std::size_t threads,
                const std::string& level) {
        const fm2::RowRuns runs = runs_of(fields, counts, features);
        runs.check(table_->layout);
        optimizer.check();
        expect(table_->state.size() == optimizer.states(), "update: the table has the state of another optimizer");
        expect_size("update", "begins", begins, counts.size());
        for (std::size_t i = 0; i < counts.size(); ++i) {
            const std::int64_t floats = std::int64_t{counts.data()[i]} * table_->layout.dim[static_cast<std::size_t>(fields.data()[i])];
            const auto size = static_cast<std::int64_t>(gradients.size());
            expect(begins.data()[i] >= 0 && begins.data()[i] <= size - floats, "update: run ", i, " is not within the gradients");
        }
        nb::gil_scoped_release release;
        updater_.update(kernels_of(level), {table_->view(), optimizer, {}}, runs, gradients.data(), begins.data(), step, threads);
    }

    void mark(const Numbers& fields, const Numbers& counts, const Numbers& features, std::int32_t number) {
        const fm2::RowRuns runs = runs_of(fields, counts, features);
        runs.check(table_->layout);
        updater_.mark(table_->layout, runs, number);
    }

    Array<std::uint8_t, 1> find(const Numbers& fields, const Numbers& counts, const Numbers& features, std::int32_t number) const {
        const fm2::RowRuns runs = runs_of(fields, counts, features);
        runs.check(table_->layout);
        std::vector<std::uint8_t> marked(features.size());
        updater_.find(table_->layout, runs, number, marked.data());
        return to_numpy(std::move(marked));
    }

private:
    std::shared_ptr<EmbeddingTable> table_;
    fm2::RowUpdater updater_;
};

}  // namespace

void init_sharding(nb::module_& module) {
    module.def("compact", compact, "batch"_a, "owners"_a, "workers"_a, "threads"_a = 0,
               "Number the distinct features of a batch from 0 on; return their counts, ids and numbers by worker.");
    module.def("value_ids", value_ids, "batch"_a, "field"_a, "Return the ids of all values of a field in a batch.");
    module.def("read_rows", read_rows, "layout"_a, "buffer"_a.noconvert(), "fields"_a.noconvert(), "counts"_a.noconvert(),
               "features"_a.noconvert(), "out"_a.noconvert(), "Copy rows of a table to packed rows.");
    module.def("write_rows", write_rows, "layout"_a, "buffer"_a.noconvert(), "fields"_a.noconvert(), "counts"_a.noconvert(),
               "features"_a.noconvert(), "rows"_a.noconvert(), "Copy packed rows to rows of a table.");
    module.def("split_rows", split_rows, "counts"_a.noconvert(), "features"_a.noconvert(), "marks"_a.noconvert(),
               "Divide rows into those with mark 0 and the others; return the counts and features of both.");
    nb::class_<Shard>(module, "Shard", "A table whose rows are updated by gradients of several workers.")
        .def(nb::init<std::shared_ptr<EmbeddingTable>>(), "table"_a)
        .def("update", &Shard::update, "optimizer"_a, "fields"_a.noconvert(), "counts"_a.noconvert(), "features"_a.noconvert(),
             "gradients"_a.noconvert(), "begins"_a.noconvert(), "step"_a, "threads"_a = 0, "level"_a = "",
             "Update every distinct feature once, by the sum of its gradients in the order of the runs.")
        .def("mark", &Shard::mark, "fields"_a.noconvert(), "counts"_a.noconvert(), "features"_a.noconvert(), "number"_a,
             "Mark features with a number.")
        .def("find", &Shard::find, "fields"_a.noconvert(), "counts"_a.noconvert(), "features"_a.noconvert(), "number"_a,
             "Return which features have been marked with this number.");
}
