// The later passes of preparing a log: blocks of provisional numbers are counted, then become rows of ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fm2 {

// numbers is [field][row]. Adds 1 to counts[field][number] for each row that is wanted.
void count_numbers(const std::int32_t* numbers, std::size_t rows, std::span<const std::uint8_t> wanted,
                   const std::vector<std::span<std::int64_t>>& counts, std::size_t threads);

// ids[i][field] = ids_of[field][number of row order[i]].
void write_rows(const std::int32_t* numbers, std::size_t rows, std::span<const std::int32_t> order,
                const std::vector<std::span<const std::int32_t>>& ids_of, std::int32_t* ids, std::size_t threads);

}  // namespace fm2
