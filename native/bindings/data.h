// Conversions that the bindings of collector and encoder share.
#pragma once

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "arrays.h"
#include "fm2/arrow.h"
#include "fm2/text.h"

// Views the memory of a native object as an array, and keeps that object alive.
template <class T, class... Sizes>
Array<T, sizeof...(Sizes)> view(nanobind::handle owner, const std::vector<std::remove_const_t<T>>& values, Sizes... sizes) {
    return {const_cast<T*>(values.data()), {static_cast<std::size_t>(sizes)...}, owner};
}

inline std::string_view as_text(const Array<const std::uint8_t, 1>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// (row, field or -1, fault, offending text) of every bad row.
std::vector<std::tuple<std::size_t, std::int32_t, std::string, nanobind::bytes>> list_bad(const std::vector<fm2::BadRow>& bad);

void check_text(const Array<const std::uint8_t, 1>& text, const fm2::TextFormat& format, const std::vector<std::size_t>& positions);
void check_batch(const fm2::ArrowReader& frame, std::size_t first, std::size_t count, const std::vector<std::size_t>& positions);
