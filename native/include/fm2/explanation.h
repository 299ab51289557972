// What every field and every pair of fields adds to a row's logit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fm2/scorer.h"

namespace fm2 {

struct Explanation {
    double bias;
    std::vector<double> fields;  // [fields]
    std::vector<double> pairs;   // [fields, fields]: that of i < j stands at (i, j), the rest is zero
};

// Of the ids [fields] of one row. Throws std::out_of_range where an id is not in its field.
Explanation explain(const Kernels& kernels, const Scorer& scorer, const std::int32_t* ids);

}  // namespace fm2
