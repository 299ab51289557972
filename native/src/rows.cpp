#include "fm2/rows.h"

#include <algorithm>

#include "fm2/pool.h"

namespace fm2 {

void count_numbers(const std::int32_t* numbers, std::size_t rows, std::span<const std::uint8_t> wanted,
                   const std::vector<std::span<std::int64_t>>& counts, std::size_t threads) {
    parallel_for(counts.size(), threads, [&](std::size_t field) {
        const std::int32_t* column = numbers + field * rows;
        std::int64_t* count = counts[field].data();
        for (std::size_t i = 0; i < rows; ++i) count[column[i]] += wanted[i];
    });
}

void write_rows(const std::int32_t* numbers, std::size_t rows, std::span<const std::int32_t> order,
                const std::vector<std::span<const std::int32_t>>& ids_of, std::int32_t* ids, std::size_t threads) {
    const std::size_t fields = ids_of.size();
    constexpr std::size_t block = 1024;  // rows whose ids stay in the cache while the fields fill them
    parallel_for((order.size() + block - 1) / block, threads, [&](std::size_t part) {
        const std::size_t begin = part * block, end = std::min(begin + block, order.size());
        for (std::size_t field = 0; field < fields; ++field) {
            const std::int32_t* column = numbers + field * rows;
            const std::int32_t* id = ids_of[field].data();
            for (std::size_t i = begin; i < end; ++i) ids[i * fields + field] = id[column[order[i]]];
        }
    });
}

}  // namespace fm2
