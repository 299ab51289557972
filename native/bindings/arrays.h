// Helpers to pass numpy arrays to C++.
#pragma once

#include <nanobind/ndarray.h>

#include <optional>
#include <string>
#include <vector>

#include "fm2/expect.h"
#include "kernels/kernels.h"

template <class T, int Dimensions>
using Array = nanobind::ndarray<T, nanobind::numpy, nanobind::ndim<Dimensions>, nanobind::c_contig, nanobind::device::cpu>;
template <class T, int Dimensions>
using Maybe = std::optional<Array<T, Dimensions>>;

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

inline const fm2::Kernels& kernels_of(const std::string& level) { return level.empty() ? fm2::kernels() : fm2::kernels(level); }
