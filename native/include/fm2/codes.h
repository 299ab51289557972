// The codes of a log's values, block by block: counting them, and replacing them with ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fm2 {

// Adds 1 to counts[field][code] for every row with counted[row] = 1. codes is [field][row]. A field without counts is skipped.
void count_codes(const std::int32_t* codes, std::size_t rows, std::span<const std::uint8_t> counted,
                 const std::vector<std::span<std::int64_t>>& counts, std::size_t threads);

// Computes ids[i][field] = ids_of[field][code of row order[i]].
void codes_to_ids(const std::int32_t* codes, std::size_t rows, std::span<const std::int32_t> order,
                  const std::vector<std::span<const std::int32_t>>& ids_of, std::int32_t* ids, std::size_t threads);

}  // namespace fm2
