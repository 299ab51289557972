#include "fm2/codes.h"

#include <algorithm>

#include "fm2/pool.h"

namespace fm2 {

void count_codes(const std::int32_t* codes, std::size_t rows, std::span<const std::uint8_t> counted,
                 const std::vector<std::span<std::int64_t>>& counts, std::size_t threads) {
    parallel_for(counts.size(), threads, [&](std::size_t field) {
        if (counts[field].empty()) return;
        const std::int32_t* column = codes + field * rows;
        std::int64_t* count = counts[field].data();
        for (std::size_t i = 0; i < rows; ++i) count[column[i]] += counted[i];
    });
}

void codes_to_ids(const std::int32_t* codes, std::size_t rows, std::span<const std::int32_t> order,
                  const std::vector<std::span<const std::int32_t>>& ids_of, std::int32_t* ids, std::size_t threads) {
    const std::size_t fields = ids_of.size();
    constexpr std::size_t block = 1024;  // rows whose ids stay in the cache while all fields are filled in
    parallel_for((order.size() + block - 1) / block, threads, [&](std::size_t part) {
        const std::size_t begin = part * block, end = std::min(begin + block, order.size());
        for (std::size_t field = 0; field < fields; ++field) {
            const std::int32_t* column = codes + field * rows;
            const std::int32_t* id = ids_of[field].data();
            for (std::size_t i = begin; i < end; ++i) ids[i * fields + field] = id[column[order[i]]];
        }
    });
}

}  // namespace fm2
