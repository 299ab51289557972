// Rows of embedding tables that are exchanged between workers, each of which stores a shard of every table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fm2/embedding.h"

namespace fm2 {

// Features of a table, in runs: counts[i] features of fields[i]. Their rows are packed one after the other.
struct RowRuns {
    std::span<const std::int32_t> fields, counts;
    std::span<const std::int32_t> features;

    // Throws unless every feature exists in the table; returns the length of the packed rows.
    std::size_t check(const Layout& layout) const;
};

// Copies rows from a table's buffer to packed rows, and back.
void read_rows(const Layout& layout, const float* buffer, const RowRuns& runs, float* packed);
void write_rows(const Layout& layout, const RowRuns& runs, const float* packed, float* buffer);

// Some of the features of other runs, with their counts per run.
struct SomeRows {
    std::vector<std::int32_t> counts, features;
};

// Divides features into those whose mark is 0 and the others; marks has one number per feature.
std::array<SomeRows, 2> split_rows(const RowRuns& runs, const std::uint8_t* marks);

// Updates rows by packed gradients. A feature that occurs in several runs, because several workers use it, is updated once, by the sum of
// its gradients in the order of the runs.
class RowUpdater {
public:
    explicit RowUpdater(const Layout& layout);

    // Run i has the packed gradients that begin at begins[i] of `gradients`.
    void update(const Kernels& kernels, const Update& update, const RowRuns& runs, const float* gradients, const std::int64_t* begins,
                std::int64_t step, std::size_t threads);

    // Marks features with a number; `find` writes 1 for features that have been marked with this number, otherwise 0.
    void mark(const Layout& layout, const RowRuns& runs, std::int32_t number);
    void find(const Layout& layout, const RowRuns& runs, std::int32_t number, std::uint8_t* marked) const;

private:
    std::vector<std::int32_t> slots_, marks_;  // of every feature; no marks until there are any
};

}  // namespace fm2
