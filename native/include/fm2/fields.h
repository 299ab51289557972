// Fields: how cells become features.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/cells.h"
#include "fm2/hash.h"
#include "fm2/transform.h"

namespace fm2 {

struct Field {
    std::size_t column = 0;  // index among the columns that are read
    Transform transform;
    unsigned hash_bits = 0;  // 0 if the field has a vocabulary

    std::int32_t hashed(std::string_view token) const { return static_cast<std::int32_t>(hash_bytes(token) >> (64 - hash_bits)); }
};

// Reads cells, and replaces the texts that the schema declares as missing with empty ones.
class CellReader {
public:
    explicit CellReader(std::vector<std::string> missing) : missing_(std::move(missing)) {}
    void read(const Column& column, std::size_t first, std::size_t count, Batch& batch) const;
    std::string_view read(std::string_view cell) const;

private:
    std::vector<std::string> missing_;
};

// Calls body(first, count) for the rows [0, rows), one batch at a time.
template <class Body>
void by_batch(std::size_t rows, Body body) {
    for (std::size_t first = 0; first < rows; first += Batch::capacity) body(first, std::min(Batch::capacity, rows - first));
}

}  // namespace fm2
