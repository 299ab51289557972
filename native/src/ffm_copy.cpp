// Copies the weights of a field-aware factorization machine from and to dense arrays.
#include <algorithm>

#include "fm2/ffm.h"
#include "fm2/pool.h"

namespace fm2 {
namespace {

constexpr std::size_t features_per_task = 1024;

// Calls body(feature, its field, its row in the table) for features [begin, begin + count).
template <class Body>
void for_features(const Ffm& model, std::int64_t begin, std::size_t count, std::size_t threads, const Body& body) {
    const FfmLayout& layout = *model.layout;
    parallel_for((count + features_per_task - 1) / features_per_task, threads, [&](std::size_t task) {
        const std::int64_t from = begin + static_cast<std::int64_t>(task * features_per_task);
        const std::int64_t to = std::min(from + static_cast<std::int64_t>(features_per_task), begin + static_cast<std::int64_t>(count));
        auto field = static_cast<std::size_t>(std::ranges::upper_bound(layout.first, from) - layout.first.begin()) - 1;
        for (std::int64_t feature = from; feature < to; ++feature) {
            while (feature - layout.first[field] >= layout.sizes[field]) ++field;
            body(static_cast<std::size_t>(feature - begin), field, model.table + feature * layout.stride);
        }
    });
}

// A row's vector for a field, and the vector's sum of squares.
struct Entry {
    Entry(const FfmLayout& layout, float* row, std::size_t field) {
        const FfmLayout::Group& group = layout.groups[layout.group[field]];
        const std::int64_t within = static_cast<std::int64_t>(field) - group.first;
        vector = row + group.offset + within * layout.dim;
        squares = row + group.offset + std::int64_t{group.count} * layout.dim + within;
    }

    float *vector, *squares;
};

// The index of another field's vector among the n - 1 vectors of a dense array.
std::size_t dense_index(std::size_t own_field, std::size_t other) { return other < own_field ? other : other - 1; }

}  // namespace

void ffm_write(const Ffm& model, std::int64_t begin, std::size_t count, const float* vectors, const float* linear, float squares,
               std::size_t threads) {
    const FfmLayout& layout = *model.layout;
    const std::size_t n = layout.fields(), dim = static_cast<std::size_t>(layout.dim);
    for_features(model, begin, count, threads, [&](std::size_t i, std::size_t own_field, float* row) {
        for (std::size_t field = 0; field < n; ++field) {
            const Entry entry(layout, row, field);
            *entry.squares = squares;
            if (field == own_field) {
                std::fill_n(entry.vector, dim, 0.0f);
                *entry.vector = linear[i];
            } else {
                std::copy_n(vectors + (i * (n - 1) + dense_index(own_field, field)) * dim, dim, entry.vector);
            }
        }
    });
}

void ffm_read(const Ffm& model, std::int64_t begin, std::size_t count, float* vectors, float* linear, std::size_t threads) {
    const FfmLayout& layout = *model.layout;
    const std::size_t n = layout.fields(), dim = static_cast<std::size_t>(layout.dim);
    for_features(model, begin, count, threads, [&](std::size_t i, std::size_t own_field, float* row) {
        for (std::size_t field = 0; field < n; ++field) {
            const Entry entry(layout, row, field);
            if (field == own_field) linear[i] = *entry.vector;
            else std::copy_n(entry.vector, dim, vectors + (i * (n - 1) + dense_index(own_field, field)) * dim);
        }
    });
}

}  // namespace fm2
