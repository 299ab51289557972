// Attention between fields.
#include "fm2/attention.h"

#include <nanobind/stl/string.h>

#include <string>

#include "arrays.h"
#include "topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Rows = Array<float, 3>;
using GivenRows = Array<const float, 3>;

fm2::AttentionShape shape_of(const GivenRows& weights, const GivenRows& x, std::size_t heads) {
    const bool whole = heads > 0 && weights.shape(1) > 0 && weights.shape(1) % heads == 0;
    expect(whole, "attention: each matrix has as many rows of every head; there are ", heads, " heads and ", weights.shape(1), " rows");
    expect(weights.shape(0) == 4 && weights.shape(2) == x.shape(2) && x.shape(1) > 0 && x.shape(2) > 0,
           "attention: there are four matrices, with a column for every number of a field, and at least one field");
    return {x.shape(1), x.shape(2), heads, weights.shape(1) / heads};
}

template <class Array>
void check(const GivenRows& x, const Array& like, std::size_t width) {
    const bool fits = like.shape(0) == x.shape(0) && like.shape(1) == x.shape(1) && like.shape(2) == width;
    expect(fits, "attention: what comes out, and slopes, have the rows and fields of what goes in; here ", width, " numbers of each");
}

void attend(const GivenRows& weights, const GivenRows& x, std::size_t heads, const Rows& out, std::size_t threads,
            const std::string& level) {
    const fm2::AttentionShape shape = shape_of(weights, x, heads);
    check(x, out, shape.width());
    const fm2::Kernels& kernels = kernels_of(level);
    nb::gil_scoped_release release;
    fm2::attend(kernels, shape, weights.data(), x.data(), x.shape(0), out.data(), threads);
}

void follow(const GivenRows& weights, const GivenRows& x, std::size_t heads, const GivenRows& out, const GivenRows& out_slopes,
            const Rows& x_slopes, const Rows& weights_slopes, std::size_t threads, const std::string& level) {
    const fm2::AttentionShape shape = shape_of(weights, x, heads);
    check(x, out, shape.width());
    check(x, out_slopes, shape.width());
    check(x, x_slopes, shape.inputs);
    check(weights, weights_slopes, shape.inputs);
    const fm2::Kernels& kernels = kernels_of(level);
    nb::gil_scoped_release release;
    fm2::follow_attention(kernels, shape, weights.data(), x.data(), out.data(), out_slopes.data(), x.shape(0), x_slopes.data(),
                          weights_slopes.data(), threads);
}

}  // namespace

void init_attention(nb::module_& module) {
    module.def("attend", &attend, "weights"_a.noconvert(), "x"_a.noconvert(), "heads"_a, "out"_a.noconvert(), "threads"_a = 0,
               "level"_a = "", "A layer in which fields attend to each other: writes what comes out of it.");
    module.def("follow_attention", &follow, "weights"_a.noconvert(), "x"_a.noconvert(), "heads"_a, "out"_a.noconvert(),
               "out_slopes"_a.noconvert(), "x_slopes"_a.noconvert(), "weights_slopes"_a.noconvert(), "threads"_a = 0, "level"_a = "",
               "Writes the slopes of the loss in what went in and in the matrices, given those in what came out. The result is the same "
               "for any number of threads.");
}
