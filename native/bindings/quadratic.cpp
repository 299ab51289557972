// The pair terms of field-matrixed factorization machines.
#include "fm2/quadratic.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <string>

#include "arrays.h"
#include "topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Floats = Array<float, 1>;
using ConstFloats = Array<const float, 1>;
using Rows = Array<float, 2>;
using ConstRows = Array<const float, 2>;

void score(fm2::QuadraticForm& form, const ConstFloats& weights, const Maybe<const float, 1>& linear, const ConstRows& rows,
           const Floats& logits, const Rows& products, std::size_t threads, const std::string& level) {
    constexpr const char* operation = "quadratic form: score";
    expect_shape(operation, "rows", rows, rows.shape(0), form.width());
    expect_size(operation, "weights", weights, form.weights());
    expect_size(operation, "linear", linear, form.width());
    expect_size(operation, "logits", logits, rows.shape(0));
    expect_shape(operation, "products", products, rows.shape(0), form.width());
    const fm2::Kernels& kernels = kernels_of(level);
    nb::gil_scoped_release release;
    form.score(kernels, weights.data(), pointer(linear), rows.data(), rows.shape(0), logits.data(), products.data(), threads);
}

void backward(const fm2::QuadraticForm& form, const ConstRows& rows, const ConstFloats& gradients, const Floats& weights,
              const Maybe<float, 1>& linear, std::size_t threads, const std::string& level) {
    constexpr const char* operation = "quadratic form: follow";
    expect_shape(operation, "rows", rows, rows.shape(0), form.width());
    expect_size(operation, "slopes", gradients, rows.shape(0));
    expect_size(operation, "weights", weights, form.weights());
    expect_size(operation, "linear", linear, form.width());
    const fm2::Kernels& kernels = kernels_of(level);
    nb::gil_scoped_release release;
    form.backward(kernels, rows.data(), rows.shape(0), gradients.data(), weights.data(), pointer(linear), threads);
}

}  // namespace

void init_quadratic(nb::module_& module) {
    using Form = fm2::QuadraticForm;
    nb::class_<Form>(module, "QuadraticForm",
                     "Compute 1/2 vᵀ S v + wᵀ v for rows v of embeddings; the blocks of S are field matrices. Not thread-safe.")
        .def(
            "__init__", [](Form* self, const Array<const std::int32_t, 1>& dims) { new (self) Form(as_vector(dims)); },
            "dims"_a.noconvert())
        .def_prop_ro("weights", &Form::weights, "Number of weights of the field matrices above the diagonal.")
        .def("score", &score, "weights"_a.noconvert(), "linear"_a.noconvert().none(), "rows"_a.noconvert(), "logits"_a.noconvert(),
             "products"_a.noconvert(), "threads"_a = 0, "level"_a = "",
             "Add the terms of the rows to the logits; write the products S v + w.")
        .def("follow", &backward, "rows"_a.noconvert(), "slopes"_a.noconvert(), "weights"_a.noconvert(), "linear"_a.noconvert().none(),
             "threads"_a = 0, "level"_a = "",
             "Write the gradients of the weights and of the linear part, given the gradients of the logits; the gradient of a row is "
             "its logit's gradient times its product. The result is the same for any number of threads.");
}
