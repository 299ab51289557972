// Reads the plan of a compiled model. The file may come from anyone, so nothing in it is trusted.
#pragma once

#include <cstdint>
#include <span>

#include "fm2/model_file.h"
#include "fm2/plans.h"

namespace fm2 {

// Returns the plan of a model with fields of these sizes; it points into the file. Throws BadModel if sections do not match each other.
Plan read_plan(const ModelFile& file, std::span<const std::int32_t> sizes);

}  // namespace fm2
