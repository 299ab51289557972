// The pair terms of field-matrixed factorization machines.
#include "fm2/quadratic.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "arrays.h"
#include "topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Floats = Array<float, 1>;
using Given = Array<const float, 1>;
using Rows = Array<float, 2>;
using GivenRows = Array<const float, 2>;

void check(const std::string& operation, const fm2::QuadraticForm& form, const GivenRows& rows, std::size_t weights,
           const std::optional<std::size_t>& linear, std::size_t logits) {
    expect(rows.shape(1) == form.width(), operation, ": rows have ", form.width(), " columns");
    expect(weights == form.weights(), operation, ": there are ", form.weights(), " weights");
    expect(!linear || *linear == form.width(), operation + ": the linear part has a weight for every column");
    expect(logits == rows.shape(0), operation + ": there is a logit, or its slope, for every row");
}

void score(fm2::QuadraticForm& form, const Given& weights, const std::optional<Given>& linear, const GivenRows& rows, const Floats& logits,
           const Rows& products, std::size_t threads, const std::string& level) {
    check("quadratic form: score", form, rows, weights.size(), linear ? std::optional(linear->size()) : std::nullopt, logits.size());
    const bool alike = products.shape(0) == rows.shape(0) && products.shape(1) == rows.shape(1);
    expect(alike, "quadratic form: score: products have the rows' shape");
    const fm2::Kernels& kernels = kernels_of(level);
    nb::gil_scoped_release release;
    form.score(kernels, weights.data(), pointer(linear), rows.data(), rows.shape(0), logits.data(), products.data(), threads);
}

void follow(const fm2::QuadraticForm& form, const GivenRows& rows, const Given& slopes, const Floats& weights,
            const std::optional<Floats>& linear, std::size_t threads, const std::string& level) {
    check("quadratic form: follow", form, rows, weights.size(), linear ? std::optional(linear->size()) : std::nullopt, slopes.size());
    const fm2::Kernels& kernels = kernels_of(level);
    nb::gil_scoped_release release;
    form.follow(kernels, rows.data(), rows.shape(0), slopes.data(), weights.data(), pointer(linear), threads);
}

}  // namespace

void init_quadratic(nb::module_& module) {
    nb::class_<fm2::QuadraticForm>(module, "QuadraticForm",
                                   "1/2 vᵀ S v + wᵀ v for rows v of embeddings; the blocks of S are field matrices. One caller at a time.")
        .def("__init__", [](fm2::QuadraticForm* self, const Array<const std::int32_t, 1>& dims) {
                 new (self) fm2::QuadraticForm(as_vector(dims));
             },
             "dims"_a.noconvert())
        .def_prop_ro("weights", &fm2::QuadraticForm::weights, "How many entries the field matrices above the diagonal have.")
        .def("score", &score, "weights"_a.noconvert(), "linear"_a.noconvert().none(), "rows"_a.noconvert(), "logits"_a.noconvert(),
             "products"_a.noconvert(), "threads"_a = 0, "level"_a = "",
             "Adds the terms of the rows to the logits; writes the products S v + w.")
        .def("follow", &follow, "rows"_a.noconvert(), "slopes"_a.noconvert(), "weights"_a.noconvert(),
             "linear"_a.noconvert().none(), "threads"_a = 0, "level"_a = "",
             "Writes the gradients of the weights and of the linear part, given the slopes of the loss in the logits; that of a row is "
             "its slope times its product. The result is the same for any number of threads.");
}
