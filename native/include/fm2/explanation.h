// Explains a logit: the contribution of every field and every pair of fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fm2/scorer.h"

namespace fm2 {

struct Explanation {
    double bias;
    std::vector<double> fields;  // [fields]
    std::vector<double> pairs;   // [fields, fields]: entry (i, j) for i < j, zero elsewhere
};

// Explains the row with these ids [fields]. Throws std::out_of_range if a field does not have an id.
Explanation explain(const Kernels& kernels, const Scorer& scorer, const std::int32_t* ids);

}  // namespace fm2
