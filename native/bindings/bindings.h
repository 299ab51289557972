// What all bindings share: the modules' topics, conversions, and helpers to pass numpy arrays to C++.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/arrow.h"
#include "fm2/expect.h"
#include "fm2/file_encoder.h"
#include "fm2/rows.h"
#include "fm2/text.h"
#include "kernels/kernels.h"

namespace nb = nanobind;
using namespace nb::literals;

// Each binding file defines one of these; module.cpp calls them all.
void init_cpu(nb::module_& module);
void init_engine(nb::module_& module);
void init_ranking(nb::module_& module);
void init_calibration(nb::module_& module);
void init_data(nb::module_& module);
void init_collector(nb::module_& module);
void init_encoder(nb::module_& module);
void init_crosses(nb::module_& module);
void init_training(nb::module_& module);
void init_sharding(nb::module_& module);
void init_pairs(nb::module_& module);
void init_layers(nb::module_& module);
void init_network(nb::module_& module);
void init_information(nb::module_& module);
void init_numbers(nb::module_& module);
void init_serving(nb::module_& module);

template <class T, int Dimensions>
using Array = nb::ndarray<T, nb::numpy, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;
template <class T, int Dimensions>
using Maybe = std::optional<Array<T, Dimensions>>;

using Floats = Array<float, 1>;
using ConstFloats = Array<const float, 1>;
using OptionalFloats = Maybe<const float, 1>;
using Ids = Array<std::int32_t, 2>;
using ConstIds = Array<const std::int32_t, 2>;
using Numbers = Array<const std::int32_t, 1>;
using Bytes = Array<const std::uint8_t, 1>;
using Positions = std::vector<std::size_t>;

template <class Array>
auto* pointer(const std::optional<Array>& array) {
    return array ? array->data() : nullptr;
}

template <class T>
std::vector<std::remove_const_t<T>> as_vector(const Array<T, 1>& array) {
    return {array.data(), array.data() + array.size()};
}

using fm2::expect;

// Throws std::invalid_argument unless the array has `size` entries.
template <class T>
void expect_size(const char* operation, const char* name, const Array<T, 1>& array, std::size_t size) {
    expect(array.size() == size, operation, ": ", name, " must have ", size, " entries, got ", array.size());
}

template <class T>
void expect_size(const char* operation, const char* name, const Maybe<T, 1>& array, std::size_t size) {
    if (array) expect_size(operation, name, *array, size);
}

// Throws std::invalid_argument unless the array has the shape [rows, columns].
template <class T>
void expect_shape(const char* operation, const char* name, const Array<T, 2>& array, std::size_t rows, std::size_t columns) {
    expect(array.shape(0) == rows && array.shape(1) == columns, operation, ": ", name, " must have the shape [", rows, ", ", columns,
           "], got [", array.shape(0), ", ", array.shape(1), "]");
}

// Throws std::out_of_range unless the index is below the size.
inline void expect_index(const char* name, std::size_t index, std::size_t size) {
    if (index >= size) throw std::out_of_range(std::string(name) + " " + std::to_string(index) + " is out of range");
}

inline const fm2::Kernels& kernels_of(const std::string& level) { return level.empty() ? fm2::kernels() : fm2::kernels(level); }

// The lists of the multi-valued fields, one entry per field, or none at all: offsets, ids and weights.
using ListArrays = std::tuple<Array<const std::int64_t, 1>, Numbers, OptionalFloats>;
using RowLists = std::vector<std::optional<ListArrays>>;
// Throws std::invalid_argument if arrays do not match each other or the number of fields. The arrays must outlive the result.
std::vector<fm2::Lists> lists_of(const RowLists& lists, std::size_t fields);

// Moves lists into arrays, one entry per field, None for other fields; nothing at all if there are no list fields.
using OwnedLists = std::vector<std::optional<std::tuple<Array<std::int64_t, 1>, Array<std::int32_t, 1>, Array<float, 1>>>>;
OwnedLists to_numpy(const fm2::Encoder& encoder, std::vector<fm2::ListBuffer> lists);

// A compiled model as Python holds it.
struct Compiled : fm2::CompiledModel {
    using CompiledModel::CompiledModel;
    std::vector<nb::str> columns;  // the encoder's column names
    nb::object dense;              // the layers of a network: a function of embeddings [rows, width] that returns numbers [rows]
};

// Calls embed(begin, end, embeddings, logits), without the GIL, and the model's dense part, for blocks of rows; adds up the logits. Throws
// std::invalid_argument if there is no dense part, or its result has another shape.
using Embed = std::function<void(std::size_t begin, std::size_t end, float* embeddings, float* logits)>;
void score_in_blocks(const Compiled& model, std::size_t rows, float* logits, const Embed& embed);

// Views the memory of a native object as an array, and keeps that object alive.
template <class T, class... Sizes>
Array<T, sizeof...(Sizes)> view(nb::handle owner, const std::vector<std::remove_const_t<T>>& values, Sizes... sizes) {
    return {const_cast<T*>(values.data()), {static_cast<std::size_t>(sizes)...}, owner};
}

// Moves values into an array.
template <class T>
Array<T, 1> to_numpy(std::vector<T> values) {
    auto* owned = new std::vector<T>(std::move(values));
    nb::capsule owner(owned, [](void* vector) noexcept { delete static_cast<std::vector<T>*>(vector); });
    return {owned->data(), {owned->size()}, owner};
}

inline std::string_view as_text(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// (row, field or -1, fault, offending text) of every bad row.
std::vector<std::tuple<std::size_t, std::int32_t, std::string, nb::bytes>> list_bad(const std::vector<fm2::BadRow>& bad);

void check_text(const Bytes& text, const fm2::TextFormat& format, const Positions& positions);
void check_batch(const fm2::ArrowReader& frame, std::size_t first, std::size_t count, const Positions& positions);
