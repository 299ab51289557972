// What all topics need to take numpy's arrays.
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

inline const fm2::Kernels& kernels_of(const std::string& level) { return level.empty() ? fm2::kernels() : fm2::kernels(level); }
