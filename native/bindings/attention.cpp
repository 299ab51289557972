// Attention between the fields of a row.
#include "fm2/attention.h"

#include <nanobind/stl/string.h>

#include <string>

#include "arrays.h"
#include "topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Rows = Array<float, 3>;
using ConstRows = Array<const float, 3>;

fm2::AttentionShape shape_of(const ConstRows& weights, const ConstRows& x, std::size_t heads) {
    const bool divisible = heads > 0 && weights.shape(1) > 0 && weights.shape(1) % heads == 0;
    expect(divisible, "attention: the number of rows per matrix must be a multiple of heads, got ", weights.shape(1), " and ", heads);
    expect(weights.shape(0) == 4 && weights.shape(2) == x.shape(2) && x.shape(1) > 0 && x.shape(2) > 0,
           "attention: weights must be [4, heads * dim, inputs] and x [rows, fields, inputs], with at least one field and one input");
    return {x.shape(1), x.shape(2), heads, weights.shape(1) / heads};
}

template <class Array>
void check_shape(const ConstRows& x, const Array& array, std::size_t width) {
    const bool matches = array.shape(0) == x.shape(0) && array.shape(1) == x.shape(1) && array.shape(2) == width;
    expect(matches, "attention: expected an array of shape [", x.shape(0), ", ", x.shape(1), ", ", width, "], got [", array.shape(0), ", ",
           array.shape(1), ", ", array.shape(2), "]");
}

void forward(const ConstRows& weights, const ConstRows& x, std::size_t heads, const Rows& out, std::size_t threads,
             const std::string& level) {
    const fm2::AttentionShape shape = shape_of(weights, x, heads);
    check_shape(x, out, shape.width());
    const fm2::Kernels& kernels = kernels_of(level);
    nb::gil_scoped_release release;
    fm2::attention_forward(kernels, shape, weights.data(), x.data(), x.shape(0), out.data(), threads);
}

void backward(const ConstRows& weights, const ConstRows& x, std::size_t heads, const ConstRows& out, const ConstRows& out_gradients,
              const Rows& x_gradients, const Rows& weight_gradients, std::size_t threads, const std::string& level) {
    const fm2::AttentionShape shape = shape_of(weights, x, heads);
    check_shape(x, out, shape.width());
    check_shape(x, out_gradients, shape.width());
    check_shape(x, x_gradients, shape.inputs);
    check_shape(weights, weight_gradients, shape.inputs);
    const fm2::Kernels& kernels = kernels_of(level);
    nb::gil_scoped_release release;
    fm2::attention_backward(kernels, shape, weights.data(), x.data(), out.data(), out_gradients.data(), x.shape(0), x_gradients.data(),
                            weight_gradients.data(), threads);
}

}  // namespace

void init_attention(nb::module_& module) {
    module.def("attend", &forward, "weights"_a.noconvert(), "x"_a.noconvert(), "heads"_a, "out"_a.noconvert(), "threads"_a = 0,
               "level"_a = "", "Write the output of a layer in which the fields of a row attend to each other.");
    module.def("follow_attention", &backward, "weights"_a.noconvert(), "x"_a.noconvert(), "heads"_a, "out"_a.noconvert(),
               "out_slopes"_a.noconvert(), "x_slopes"_a.noconvert(), "weights_slopes"_a.noconvert(), "threads"_a = 0, "level"_a = "",
               "Write the gradients of the input and of the matrices, given the gradients of the output. The result is the same for any "
               "number of threads.");
}
