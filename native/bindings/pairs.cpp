// Models of pairs that are trained row after row: FFM and Poly2.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "arrays.h"
#include "fm2/ffm.h"
#include "fm2/poly2.h"
#include "topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Floats = Array<float, 1>;
using Given = Array<const float, 1>;
using MaybeGiven = Maybe<const float, 1>;
using Rule = fm2::Optimizer::Rule;

void check_rows(const std::string& operation, const fm2::Minibatch& batch, const Given& labels, const MaybeGiven& weights) {
    expect(labels.size() == batch.size(), operation + ": labels has an entry for every row of the batch");
    expect(!weights || weights->size() == batch.size(), operation + ": weights has an entry for every row of the batch");
}

// A field-aware factorization machine and the arrays it lives in.
struct Ffm {
    fm2::FfmLayout layout;
    Floats table, bias;

    void check() const {
        expect(table.size() == static_cast<std::size_t>(layout.floats),
               "ffm: the layout asks for a table of " + std::to_string(layout.floats) + " floats");
        expect(bias.size() == 2, "ffm: bias has two floats, the bias and its sum of squares");
    }

    fm2::Ffm view() const { return {&layout, table.data(), bias.data()}; }

    fm2::Ffm view(const std::string& operation, const fm2::Minibatch& batch) const {
        expect(batch.sizes() == layout.sizes, operation + ": the batch and the model have fields of other sizes");
        return view();
    }

    void score(const fm2::Minibatch& batch, const Floats& logits, std::size_t threads, const std::string& level) const {
        const fm2::Ffm model = view("ffm.score", batch);
        expect(logits.size() == batch.size(), "ffm.score: logits has an entry for every row of the batch");
        const fm2::Kernels& kernels = kernels_of(level);
        nb::gil_scoped_release release;
        fm2::ffm_score(kernels, model, batch, logits.data(), threads);
    }

    double step(const fm2::Minibatch& batch, const Given& labels, const MaybeGiven& weights, const fm2::Optimizer& vectors,
                const fm2::Optimizer& linear, std::size_t threads, const std::string& level) const {
        const fm2::Ffm model = view("ffm.step", batch);
        check_rows("ffm.step", batch, labels, weights);
        vectors.check();
        linear.check();
        expect(vectors.rule == Rule::adagrad && linear.rule == Rule::adagrad, "ffm.step: the rule is adagrad");
        const fm2::Kernels& kernels = kernels_of(level);
        nb::gil_scoped_release release;
        return fm2::ffm_step(kernels, model, batch, labels.data(), pointer(weights), {vectors, linear}, threads);
    }

    template <class Vectors, class Linear>
    void check_copy(const std::string& operation, std::int64_t begin, const Vectors& vectors, const Linear& linear) const {
        const auto n = layout.fields(), dim = static_cast<std::size_t>(layout.dim);
        const auto features = static_cast<std::size_t>(layout.features);
        expect(vectors.shape(1) == n - 1 && vectors.shape(2) == dim && vectors.shape(0) == linear.size(),
               operation + ": vectors is [features, fields - 1, dim], linear [features]");
        expect(begin >= 0 && static_cast<std::size_t>(begin) <= features && linear.size() <= features - static_cast<std::size_t>(begin),
               operation + ": there are " + std::to_string(features) + " features");
    }

    void write(const Array<const float, 3>& vectors, const Given& linear, float squares, std::int64_t begin, std::size_t threads) const {
        check_copy("ffm.write", begin, vectors, linear);
        expect(squares >= 0, "ffm.write: squares is not negative");
        nb::gil_scoped_release release;
        fm2::ffm_write(view(), begin, linear.size(), vectors.data(), linear.data(), squares, threads);
    }

    void read(const Array<float, 3>& vectors, const Floats& linear, std::int64_t begin, std::size_t threads) const {
        check_copy("ffm.read", begin, vectors, linear);
        nb::gil_scoped_release release;
        fm2::ffm_read(view(), begin, linear.size(), vectors.data(), linear.data(), threads);
    }
};

// A degree-2 polynomial and the arrays it lives in.
struct Poly2 {
    std::vector<std::int32_t> sizes;
    std::int32_t hash_bits;
    Array<float, 2> pairs, linear;
    Floats bias;

    void check() const {
        std::int64_t features = 0;
        for (const std::int32_t size : sizes) features += size;
        expect(sizes.size() >= 1 && sizes.size() <= fm2::Poly2::max_fields, "poly2: the number of fields goes from 1 to 1024");
        expect(hash_bits >= 0 && hash_bits <= fm2::Poly2::max_hash_bits, "poly2: hash_bits goes from 0, for no pairs, to 30");
        expect(pairs.shape(0) == (hash_bits ? std::size_t{1} << hash_bits : 0), "poly2: pairs has 2^hash_bits cells, or none");
        expect(linear.shape(0) == static_cast<std::size_t>(features), "poly2: linear has a cell for every feature");
        expect(pairs.shape(1) >= 1 && pairs.shape(1) == linear.shape(1) && pairs.shape(1) == bias.size(),
               "poly2: the cells of pairs, linear and bias have the same number of floats");
    }

    fm2::Poly2 view(const std::string& operation, const fm2::Minibatch& batch) const {
        expect(batch.sizes() == sizes, operation + ": the batch and the model have fields of other sizes");
        return {hash_bits, bias.size(), pairs.data(), linear.data(), bias.data()};
    }

    void score(const fm2::Minibatch& batch, const Floats& logits, std::size_t threads, const std::string& level) const {
        const fm2::Poly2 model = view("poly2.score", batch);
        expect(logits.size() == batch.size(), "poly2.score: logits has an entry for every row of the batch");
        const fm2::Kernels& kernels = kernels_of(level);
        nb::gil_scoped_release release;
        fm2::poly2_score(kernels, model, batch, logits.data(), threads);
    }

    double step(const fm2::Minibatch& batch, const Given& labels, const MaybeGiven& weights, const fm2::Optimizer& pairs_rule,
                const fm2::Optimizer& linear_rule, std::size_t threads, const std::string& level) const {
        const fm2::Poly2 model = view("poly2.step", batch);
        check_rows("poly2.step", batch, labels, weights);
        pairs_rule.check();
        linear_rule.check();
        expect(pairs_rule.rule == linear_rule.rule && pairs_rule.rule != Rule::adam,
               "poly2.step: the rule is adagrad or ftrl, the same for both tables");
        expect(model.cell >= fm2::Poly2::cell_of(pairs_rule), "poly2.step: the rule needs cells of " +
               std::to_string(fm2::Poly2::cell_of(pairs_rule)) + " floats");
        const fm2::Kernels& kernels = kernels_of(level);
        nb::gil_scoped_release release;
        return fm2::poly2_step(kernels, model, batch, labels.data(), pointer(weights), {pairs_rule, linear_rule}, threads);
    }
};

}  // namespace

void init_pairs(nb::module_& module) {
    nb::class_<fm2::FfmLayout>(module, "FfmLayout", "Where a field-aware factorization machine's weights lie in its table.")
        .def("__init__", [](fm2::FfmLayout* self, const Array<const std::int32_t, 1>& sizes, std::int32_t dim) {
                 new (self) fm2::FfmLayout(as_vector(sizes), dim);
             },
             "sizes"_a.noconvert(), "dim"_a)
        .def_ro("floats", &fm2::FfmLayout::floats, "How long the table is.")
        .def_ro("features", &fm2::FfmLayout::features, "Of all fields.");

    nb::class_<Ffm>(module, "Ffm", "A field-aware factorization machine that learns row after row.")
        .def("__init__", [](Ffm* self, const fm2::FfmLayout& layout, Floats table, Floats bias) {
                 Ffm model{layout, std::move(table), std::move(bias)};
                 model.check();
                 new (self) Ffm(std::move(model));
             },
             "layout"_a, "table"_a.noconvert(), "bias"_a.noconvert(),
             "The table is best aligned to cache lines. The bias is followed by its sum of squares.")
        .def("score", &Ffm::score, "batch"_a, "logits"_a.noconvert(), "threads"_a = 0, "level"_a = "", "Writes the batch's logits.")
        .def("step", &Ffm::step, "batch"_a, "labels"_a.noconvert(), "weights"_a.noconvert().none(), "vectors"_a, "linear"_a,
             "threads"_a = 0, "level"_a = "",
             "Learns from the batch, row after row, by Adagrad; gives the weighted mean of the rows' log losses. The result is the "
             "same for any number of threads.")
        .def("write", &Ffm::write, "vectors"_a.noconvert(), "linear"_a.noconvert(), "squares"_a, "begin"_a = 0, "threads"_a = 0,
             "Sets the weights of the features from begin on: vectors [features, fields - 1, dim] for the other fields in their "
             "order, linear [features]; all their sums of squares become the same.")
        .def("read", &Ffm::read, "vectors"_a.noconvert(), "linear"_a.noconvert(), "begin"_a = 0, "threads"_a = 0,
             "Copies the weights of the features from begin on to such arrays.");

    nb::class_<Poly2>(module, "Poly2", "A degree-2 polynomial with hashed pairs that learns row after row.")
        .def("__init__", [](Poly2* self, const Array<const std::int32_t, 1>& sizes, std::int32_t hash_bits, Array<float, 2> pairs,
                            Array<float, 2> linear, Floats bias) {
                 Poly2 model{as_vector(sizes), hash_bits, std::move(pairs), std::move(linear), std::move(bias)};
                 model.check();
                 new (self) Poly2(std::move(model));
             },
             "sizes"_a.noconvert(), "hash_bits"_a, "pairs"_a.noconvert(), "linear"_a.noconvert(), "bias"_a.noconvert(),
             "Cells are a weight and what its rule remembers: (w, n) for Adagrad, (w, z, n, 0) for FTRL.")
        .def_static("cell", &fm2::Poly2::cell_of, "optimizer"_a, "How many floats a cell has for this rule.")
        .def("score", &Poly2::score, "batch"_a, "logits"_a.noconvert(), "threads"_a = 0, "level"_a = "", "Writes the batch's logits.")
        .def("step", &Poly2::step, "batch"_a, "labels"_a.noconvert(), "weights"_a.noconvert().none(), "pairs"_a, "linear"_a,
             "threads"_a = 0, "level"_a = "",
             "Learns from the batch, row after row, by Adagrad or FTRL; gives the weighted mean of the rows' log losses. The result "
             "is the same for any number of threads.");
}
