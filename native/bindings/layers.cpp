// Layers of networks: the pair terms of field-matrixed factorization machines, and attention between the fields of a row.
#include "bindings.h"
#include "fm2/attention.h"
#include "fm2/quadratic.h"

namespace {

using Rows = Array<float, 2>;
using ConstRows = Array<const float, 2>;

void score(fm2::QuadraticForm& form, const ConstFloats& weights, const OptionalFloats& linear, const ConstRows& rows, const Floats& logits,
           const Rows& products, std::size_t threads, const std::string& level) {
    constexpr const char* operation = "quadratic form: score";
    expect_shape(operation, "rows", rows, rows.shape(0), form.width());
    expect_size(operation, "weights", weights, form.weights());
    expect_size(operation, "linear", linear, form.width());
    expect_size(operation, "logits", logits, rows.shape(0));
    expect_shape(operation, "products", products, rows.shape(0), form.width());
    nb::gil_scoped_release release;
    form.score(kernels_of(level), weights.data(), pointer(linear), rows.data(), rows.shape(0), logits.data(), products.data(), threads);
}

void backward(const fm2::QuadraticForm& form, const ConstRows& rows, const ConstFloats& gradients, const Floats& weights,
              const Maybe<float, 1>& linear, std::size_t threads, const std::string& level) {
    constexpr const char* operation = "quadratic form: follow";
    expect_shape(operation, "rows", rows, rows.shape(0), form.width());
    expect_size(operation, "slopes", gradients, rows.shape(0));
    expect_size(operation, "weights", weights, form.weights());
    expect_size(operation, "linear", linear, form.width());
    nb::gil_scoped_release release;
    form.backward(kernels_of(level), rows.data(), rows.shape(0), gradients.data(), weights.data(), pointer(linear), threads);
}

using Tensor = Array<float, 3>;
using ConstTensor = Array<const float, 3>;

fm2::AttentionShape shape_of(const ConstTensor& weights, const ConstTensor& x, std::size_t heads) {
    const bool divisible = heads > 0 && weights.shape(1) > 0 && weights.shape(1) % heads == 0;
    expect(divisible, "attention: the number of rows per matrix must be a multiple of heads, got ", weights.shape(1), " and ", heads);
    expect(weights.shape(0) == 4 && weights.shape(2) == x.shape(2) && x.shape(1) > 0 && x.shape(2) > 0,
           "attention: weights must be [4, heads * dim, inputs] and x [rows, fields, inputs], with at least one field and one input");
    return {x.shape(1), x.shape(2), heads, weights.shape(1) / heads};
}

template <class Array>
void check_shape(const ConstTensor& x, const Array& array, std::size_t width) {
    const bool matches = array.shape(0) == x.shape(0) && array.shape(1) == x.shape(1) && array.shape(2) == width;
    expect(matches, "attention: expected an array of shape [", x.shape(0), ", ", x.shape(1), ", ", width, "], got [", array.shape(0), ", ",
           array.shape(1), ", ", array.shape(2), "]");
}

void attend(const ConstTensor& weights, const ConstTensor& x, std::size_t heads, const Tensor& out, std::size_t threads,
            const std::string& level) {
    const fm2::AttentionShape shape = shape_of(weights, x, heads);
    check_shape(x, out, shape.width());
    nb::gil_scoped_release release;
    fm2::attention_forward(kernels_of(level), shape, weights.data(), x.data(), x.shape(0), out.data(), threads);
}

void attend_backward(const ConstTensor& weights, const ConstTensor& x, std::size_t heads, const ConstTensor& out,
                     const ConstTensor& out_gradients, const Tensor& x_gradients, const Tensor& weight_gradients, std::size_t threads,
                     const std::string& level) {
    const fm2::AttentionShape shape = shape_of(weights, x, heads);
    check_shape(x, out, shape.width());
    check_shape(x, out_gradients, shape.width());
    check_shape(x, x_gradients, shape.inputs);
    check_shape(weights, weight_gradients, shape.inputs);
    nb::gil_scoped_release release;
    fm2::attention_backward(kernels_of(level), shape, weights.data(), x.data(), out.data(), out_gradients.data(), x.shape(0),
                            x_gradients.data(), weight_gradients.data(), threads);
}

}  // namespace

void init_layers(nb::module_& module) {
    using Form = fm2::QuadraticForm;
    nb::class_<Form>(module, "QuadraticForm",
                     "Compute 1/2 vᵀ S v + wᵀ v for rows v of embeddings; the blocks of S are field matrices. Not thread-safe.")
        .def(
            "__init__", [](Form* self, const Numbers& dims) { new (self) Form(as_vector(dims)); }, "dims"_a.noconvert())
        .def_prop_ro("weights", &Form::weights, "Number of weights of the field matrices above the diagonal.")
        .def("score", &score, "weights"_a.noconvert(), "linear"_a.noconvert().none(), "rows"_a.noconvert(), "logits"_a.noconvert(),
             "products"_a.noconvert(), "threads"_a = 0, "level"_a = "",
             "Add the terms of the rows to the logits; write the products S v + w.")
        .def("follow", &backward, "rows"_a.noconvert(), "slopes"_a.noconvert(), "weights"_a.noconvert(), "linear"_a.noconvert().none(),
             "threads"_a = 0, "level"_a = "",
             "Write the gradients of the weights and of the linear part, given the gradients of the logits; the gradient of a row is "
             "its logit's gradient times its product. The result is the same for any number of threads.");
    module.def("attend", &attend, "weights"_a.noconvert(), "x"_a.noconvert(), "heads"_a, "out"_a.noconvert(), "threads"_a = 0,
               "level"_a = "", "Write the output of a layer in which the fields of a row attend to each other.");
    module.def("follow_attention", &attend_backward, "weights"_a.noconvert(), "x"_a.noconvert(), "heads"_a, "out"_a.noconvert(),
               "out_slopes"_a.noconvert(), "x_slopes"_a.noconvert(), "weights_slopes"_a.noconvert(), "threads"_a = 0, "level"_a = "",
               "Write the gradients of the input and of the matrices, given the gradients of the output. The result is the same for any "
               "number of threads.");
}
