#include "fm2/sharding.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>

#include "fm2/expect.h"
#include "fm2/pool.h"
#include "kernels/kernels.h"

namespace fm2 {

std::size_t RowRuns::check(const Layout& layout) const {
    expect(fields.size() == counts.size(), "rows: expected a count for each of ", fields.size(), " fields, got ", counts.size());
    std::size_t next = 0, floats = 0;
    for (std::size_t i = 0; i < fields.size(); ++i) {
        expect(fields[i] >= 0 && static_cast<std::size_t>(fields[i]) < layout.fields(), "rows: there is no field ", fields[i]);
        const auto field = static_cast<std::size_t>(fields[i]), count = static_cast<std::size_t>(counts[i]);
        expect(counts[i] >= 0 && count <= features.size() - next, "rows: the counts exceed the number of features");
        for (const std::int32_t feature : features.subspan(next, count))
            if (feature < 0 || feature >= layout.size[field])
                throw std::out_of_range("rows: field " + std::to_string(field) + " has no feature " + std::to_string(feature));
        next += count;
        floats += count * static_cast<std::size_t>(layout.dim[field]);
    }
    expect(next == features.size(), "rows: there are more features than counts");
    return floats;
}

namespace {

// Calls body(position of the row in the buffer, position in the packed rows, dimension) for every row.
template <class Body>
void for_rows(const Layout& layout, const RowRuns& runs, const Body& body) {
    const std::int32_t* feature = runs.features.data();
    std::int64_t packed = 0;
    for (std::size_t i = 0; i < runs.fields.size(); ++i) {
        const auto field = static_cast<std::size_t>(runs.fields[i]);
        const std::int64_t dim = layout.dim[field], offset = layout.offset[field];
        for (std::int32_t k = 0; k < runs.counts[i]; ++k, ++feature, packed += dim)
            body(offset + *feature * dim, packed, static_cast<std::size_t>(dim));
    }
}

void add(const float* from, std::size_t count, float* to) {
    for (std::size_t k = 0; k < count; ++k) to[k] += from[k];
}

}  // namespace

void read_rows(const Layout& layout, const float* buffer, const RowRuns& runs, float* packed) {
    for_rows(layout, runs,
             [&](std::int64_t row, std::int64_t at, std::size_t dim) { std::memcpy(packed + at, buffer + row, dim * sizeof(float)); });
}

void write_rows(const Layout& layout, const RowRuns& runs, const float* packed, float* buffer) {
    for_rows(layout, runs,
             [&](std::int64_t row, std::int64_t at, std::size_t dim) { std::memcpy(buffer + row, packed + at, dim * sizeof(float)); });
}

std::array<SomeRows, 2> split_rows(const RowRuns& runs, const std::uint8_t* marks) {
    std::array<SomeRows, 2> parts;
    const auto marked = static_cast<std::size_t>(std::count_if(marks, marks + runs.features.size(), [](std::uint8_t m) { return m != 0; }));
    parts[0].features.reserve(runs.features.size() - marked);
    parts[1].features.reserve(marked);
    for (SomeRows& part : parts) part.counts.reserve(runs.counts.size());
    const std::int32_t* feature = runs.features.data();
    for (const std::int32_t count : runs.counts) {
        const std::size_t before[] = {parts[0].features.size(), parts[1].features.size()};
        for (std::int32_t k = 0; k < count; ++k) parts[*marks++ != 0].features.push_back(*feature++);
        for (std::size_t p = 0; p < parts.size(); ++p)
            parts[p].counts.push_back(static_cast<std::int32_t>(parts[p].features.size() - before[p]));
    }
    return parts;
}

RowUpdater::RowUpdater(const Layout& layout) : slots_(static_cast<std::size_t>(layout.features)) {}

void RowUpdater::update(const Kernels& kernels, const Update& update, const RowRuns& runs, const float* gradients,
                        const std::int64_t* begins, std::int64_t step, std::size_t threads) {
    const Layout& layout = *update.table.layout;
    std::vector<std::vector<std::size_t>> runs_of(layout.fields());  // fields that share rows are updated together
    for (std::size_t i = 0; i < runs.fields.size(); ++i) runs_of[layout.owner[static_cast<std::size_t>(runs.fields[i])]].push_back(i);
    std::vector<std::size_t> first(runs.counts.size());
    std::exclusive_scan(runs.counts.begin(), runs.counts.end(), first.begin(), std::size_t{0});
    parallel_for(layout.fields(), threads, [&](std::size_t field) {
        static thread_local std::vector<std::int32_t> distinct;
        static thread_local std::vector<float> sums;
        const auto dim = static_cast<std::size_t>(layout.dim[field]);
        distinct.clear();
        sums.clear();
        std::int32_t* slots = slots_.data() + layout.first[field];
        for (const std::size_t run : runs_of[field])
            for (std::size_t i = 0; i < static_cast<std::size_t>(runs.counts[run]); ++i) {
                const std::int32_t feature = runs.features[first[run] + i];
                const float* gradient = gradients + begins[run] + static_cast<std::int64_t>(i * dim);
                const auto slot = static_cast<std::size_t>(slots[feature]);  // of this step only if it leads back to the feature
                if (slot < distinct.size() && distinct[slot] == feature) add(gradient, dim, sums.data() + slot * dim);
                else {
                    slots[feature] = static_cast<std::int32_t>(distinct.size());
                    distinct.push_back(feature);
                    sums.insert(sums.end(), gradient, gradient + dim);
                }
            }
        kernels.tables.update_rows({field, distinct.size(), distinct.data()}, update, step, sums.data(), nullptr);
    });
}

namespace {

// Calls body(number of the feature in the table) for every feature.
template <class Body>
void for_features(const Layout& layout, const RowRuns& runs, const Body& body) {
    const std::int32_t* feature = runs.features.data();
    for (std::size_t i = 0; i < runs.fields.size(); ++i) {
        const std::int64_t first = layout.first[static_cast<std::size_t>(runs.fields[i])];
        for (std::int32_t k = 0; k < runs.counts[i]; ++k) body(static_cast<std::size_t>(first + *feature++));
    }
}

}  // namespace

void RowUpdater::mark(const Layout& layout, const RowRuns& runs, std::int32_t number) {
    if (marks_.empty()) marks_.resize(slots_.size());
    for_features(layout, runs, [&](std::size_t feature) { marks_[feature] = number; });
}

void RowUpdater::find(const Layout& layout, const RowRuns& runs, std::int32_t number, std::uint8_t* marked) const {
    for_features(layout, runs, [&](std::size_t feature) { *marked++ = !marks_.empty() && marks_[feature] == number; });
}

}  // namespace fm2
