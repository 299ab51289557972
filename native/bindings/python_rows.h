// Rows that are Python dicts.
#pragma once

#include <nanobind/nanobind.h>

#include <span>
#include <string>
#include <vector>

#include "fm2/encoder.h"

// Column names as interned Python strings, with which dict look-ups are fastest.
std::vector<nanobind::str> intern_names(const std::vector<std::string>& names);

// Writes the ids of a row. A column that is not in the dict is missing. Does not allocate after the first rows of a thread.
void encode_dict(const fm2::Encoder& encoder, std::span<const nanobind::str> columns, PyObject* row, std::int32_t* ids);
