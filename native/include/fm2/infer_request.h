// The inference request of the Open Inference Protocol, with its binary extension.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "fm2/cell_table.h"
#include "fm2/request_columns.h"
#include "fm2/tensor.h"

namespace fm2 {

struct InferOutput {
    bool logits;  // or probabilities
    std::optional<bool> binary;
};

// Starting again keeps the memory.
struct InferRequest {
    std::string_view id;  // as JSON; empty if there is none
    std::vector<InferOutput> outputs;
    bool has_ids;                   // the request has a tensor of ids [rows, fields] instead of columns
    std::vector<std::int32_t> ids;  // scoring checks their ranges
    std::size_t rows;
};

// Reads a body that starts with `header_length` bytes of JSON, or consists of JSON if that is 0. The values of columns go to the table.
// Throws RequestError.
void read_infer(std::string_view body, std::size_t header_length, const RequestColumns& columns, const Scorer& scorer,
                const RequestLimits& limits, CellTable& table, InferRequest& request);

}  // namespace fm2
