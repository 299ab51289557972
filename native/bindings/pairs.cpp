// FFM and Poly2, which are trained row by row.
#include "bindings.h"
#include "fm2/ffm.h"
#include "fm2/poly2.h"

namespace {

using Rule = fm2::Optimizer::Rule;

void check_rows(const char* operation, const fm2::Minibatch& batch, const ConstFloats& labels, const OptionalFloats& weights) {
    expect_size(operation, "labels", labels, batch.size());
    expect_size(operation, "weights", weights, batch.size());
}

// A field-aware factorization machine and its arrays.
struct Ffm {
    fm2::FfmLayout layout;
    Floats table, bias;

    void check() const {
        expect_size("ffm", "table", table, static_cast<std::size_t>(layout.floats));
        expect_size("ffm", "bias (the bias and its sum of squares)", bias, 2);
    }

    fm2::Ffm view() const { return {&layout, table.data(), bias.data()}; }

    fm2::Ffm view(const char* operation, const fm2::Minibatch& batch) const {
        expect(batch.sizes() == layout.sizes, operation, ": the batch and the model have different field sizes");
        return view();
    }

    void score(const fm2::Minibatch& batch, const Floats& logits, std::size_t threads, const std::string& level) const {
        const fm2::Ffm model = view("ffm.score", batch);
        expect_size("ffm.score", "logits", logits, batch.size());
        nb::gil_scoped_release release;
        fm2::ffm_score(kernels_of(level), model, batch, logits.data(), threads);
    }

    double step(const fm2::Minibatch& batch, const ConstFloats& labels, const OptionalFloats& weights, const fm2::Optimizer& vectors,
                const fm2::Optimizer& linear, std::size_t threads, const std::string& level) const {
        const fm2::Ffm model = view("ffm.step", batch);
        check_rows("ffm.step", batch, labels, weights);
        vectors.check();
        linear.check();
        expect(vectors.rule == Rule::adagrad && linear.rule == Rule::adagrad, "ffm.step: the only supported optimizer is adagrad");
        nb::gil_scoped_release release;
        return fm2::ffm_step(kernels_of(level), model, batch, labels.data(), pointer(weights), {vectors, linear}, threads);
    }

    template <class Vectors, class Linear>
    void check_copy(const char* operation, std::int64_t begin, const Vectors& vectors, const Linear& linear) const {
        const auto n = layout.fields(), dim = static_cast<std::size_t>(layout.dim);
        const auto features = static_cast<std::size_t>(layout.features);
        expect(vectors.shape(1) == n - 1 && vectors.shape(2) == dim && vectors.shape(0) == linear.size(), operation,
               ": vectors must be [features, fields - 1, dim] and linear [features]");
        expect(begin >= 0 && static_cast<std::size_t>(begin) <= features && linear.size() <= features - static_cast<std::size_t>(begin),
               operation, ": cannot copy ", linear.size(), " features from feature ", begin, " on; there are ", features, " features");
    }

    void write(const Array<const float, 3>& vectors, const ConstFloats& linear, float squares, std::int64_t begin,
               std::size_t threads) const {
        check_copy("ffm.write", begin, vectors, linear);
        expect(squares >= 0, "ffm.write: squares must not be negative, got ", squares);
        nb::gil_scoped_release release;
        fm2::ffm_write(view(), begin, linear.size(), vectors.data(), linear.data(), squares, threads);
    }

    void read(const Array<float, 3>& vectors, const Floats& linear, std::int64_t begin, std::size_t threads) const {
        check_copy("ffm.read", begin, vectors, linear);
        nb::gil_scoped_release release;
        fm2::ffm_read(view(), begin, linear.size(), vectors.data(), linear.data(), threads);
    }
};

// A degree-2 polynomial and its arrays.
struct Poly2 {
    std::vector<std::int32_t> sizes;
    std::int32_t hash_bits;
    Array<float, 2> pairs, linear;
    Floats bias;

    void check() const {
        std::int64_t features = 0;
        for (const std::int32_t size : sizes) features += size;
        expect(sizes.size() >= 1 && sizes.size() <= fm2::Poly2::max_fields, "poly2: the number of fields must be between 1 and ",
               fm2::Poly2::max_fields, ", got ", sizes.size());
        expect(hash_bits >= 0 && hash_bits <= fm2::Poly2::max_hash_bits, "poly2: hash_bits must be between 0 (no pairs) and ",
               fm2::Poly2::max_hash_bits, ", got ", hash_bits);
        expect(pairs.shape(0) == (hash_bits ? std::size_t{1} << hash_bits : 0),
               "poly2: pairs must have 2^hash_bits cells, or none if hash_bits is 0; got ", pairs.shape(0));
        expect(linear.shape(0) == static_cast<std::size_t>(features), "poly2: linear must have one cell per feature (", features, "), got ",
               linear.shape(0));
        expect(pairs.shape(1) >= 1 && pairs.shape(1) == linear.shape(1) && pairs.shape(1) == bias.size(),
               "poly2: the cells of pairs, linear and bias must have the same number of floats");
    }

    fm2::Poly2 view(const char* operation, const fm2::Minibatch& batch) const {
        expect(batch.sizes() == sizes, operation, ": the batch and the model have different field sizes");
        return {hash_bits, bias.size(), pairs.data(), linear.data(), bias.data()};
    }

    void score(const fm2::Minibatch& batch, const Floats& logits, std::size_t threads, const std::string& level) const {
        const fm2::Poly2 model = view("poly2.score", batch);
        expect_size("poly2.score", "logits", logits, batch.size());
        nb::gil_scoped_release release;
        fm2::poly2_score(kernels_of(level), model, batch, logits.data(), threads);
    }

    double step(const fm2::Minibatch& batch, const ConstFloats& labels, const OptionalFloats& weights,
                const fm2::Optimizer& pairs_optimizer, const fm2::Optimizer& linear_optimizer, std::size_t threads,
                const std::string& level) const {
        const fm2::Poly2 model = view("poly2.step", batch);
        check_rows("poly2.step", batch, labels, weights);
        pairs_optimizer.check();
        linear_optimizer.check();
        expect(pairs_optimizer.rule == linear_optimizer.rule && pairs_optimizer.rule != Rule::adam,
               "poly2.step: the optimizer must be adagrad or ftrl, the same for both tables");
        const std::size_t cell = fm2::Poly2::cell_of(pairs_optimizer);
        expect(model.cell >= cell, "poly2.step: the optimizer requires cells of ", cell, " floats, got ", model.cell);
        nb::gil_scoped_release release;
        return fm2::poly2_step(kernels_of(level), model, batch, labels.data(), pointer(weights), {pairs_optimizer, linear_optimizer},
                               threads);
    }
};

}  // namespace

void init_pairs(nb::module_& module) {
    nb::class_<fm2::FfmLayout>(module, "FfmLayout", "The layout of the table of a field-aware factorization machine.")
        .def(
            "__init__",
            [](fm2::FfmLayout* self, const Numbers& sizes, std::int32_t dim) { new (self) fm2::FfmLayout(as_vector(sizes), dim); },
            "sizes"_a.noconvert(), "dim"_a)
        .def_ro("floats", &fm2::FfmLayout::floats, "Length of the table.")
        .def_ro("features", &fm2::FfmLayout::features, "Number of features of all fields.");

    nb::class_<Ffm>(module, "Ffm", "A field-aware factorization machine that is trained row by row.")
        .def(
            "__init__",
            [](Ffm* self, const fm2::FfmLayout& layout, Floats table, Floats bias) {
                Ffm model{layout, std::move(table), std::move(bias)};
                model.check();
                new (self) Ffm(std::move(model));
            },
            "layout"_a, "table"_a.noconvert(), "bias"_a.noconvert(),
            "The table should be aligned to cache lines. The bias is followed by its sum of squares.")
        .def("score", &Ffm::score, "batch"_a, "logits"_a.noconvert(), "threads"_a = 0, "level"_a = "", "Write the logits of the batch.")
        .def("step", &Ffm::step, "batch"_a, "labels"_a.noconvert(), "weights"_a.noconvert().none(), "vectors"_a, "linear"_a,
             "threads"_a = 0, "level"_a = "",
             "Train on the batch, row by row, with Adagrad; return the weighted mean of the rows' log losses. The result is the same "
             "for any number of threads.")
        .def("write", &Ffm::write, "vectors"_a.noconvert(), "linear"_a.noconvert(), "squares"_a, "begin"_a = 0, "threads"_a = 0,
             "Set the weights of the features from begin on: vectors [features, fields - 1, dim] for the other fields in order, and "
             "linear [features]. Their sums of squares are all set to `squares`.")
        .def("read", &Ffm::read, "vectors"_a.noconvert(), "linear"_a.noconvert(), "begin"_a = 0, "threads"_a = 0,
             "Copy the weights of the features from begin on to arrays of these shapes.");

    nb::class_<Poly2>(module, "Poly2", "A degree-2 polynomial with hashed pairs that is trained row by row.")
        .def(
            "__init__",
            [](Poly2* self, const Numbers& sizes, std::int32_t hash_bits, Array<float, 2> pairs, Array<float, 2> linear, Floats bias) {
                Poly2 model{as_vector(sizes), hash_bits, std::move(pairs), std::move(linear), std::move(bias)};
                model.check();
                new (self) Poly2(std::move(model));
            },
            "sizes"_a.noconvert(), "hash_bits"_a, "pairs"_a.noconvert(), "linear"_a.noconvert(), "bias"_a.noconvert(),
            "A cell is a weight and its optimizer state: (w, n) for Adagrad, (w, z, n, 0) for FTRL.")
        .def_static("cell", &fm2::Poly2::cell_of, "optimizer"_a, "Return the number of floats per cell for this optimizer.")
        .def("score", &Poly2::score, "batch"_a, "logits"_a.noconvert(), "threads"_a = 0, "level"_a = "", "Write the logits of the batch.")
        .def("step", &Poly2::step, "batch"_a, "labels"_a.noconvert(), "weights"_a.noconvert().none(), "pairs"_a, "linear"_a,
             "threads"_a = 0, "level"_a = "",
             "Train on the batch, row by row, with Adagrad or FTRL; return the weighted mean of the rows' log losses. The result is "
             "the same for any number of threads.");
}
