// A field-aware factorization machine's weights, from and to plain arrays.
#include <algorithm>

#include "fm2/ffm.h"
#include "fm2/pool.h"

namespace fm2 {
namespace {

constexpr std::size_t features_a_task = 1024;

// Calls body(feature, its field, its row in the table) for features [begin, begin + count).
template <class Body>
void for_features(const Ffm& model, std::int64_t begin, std::size_t count, std::size_t threads, const Body& body) {
    const FfmLayout& layout = *model.layout;
    parallel_for((count + features_a_task - 1) / features_a_task, threads, [&](std::size_t task) {
        const std::int64_t from = begin + static_cast<std::int64_t>(task * features_a_task);
        const std::int64_t to = std::min(from + static_cast<std::int64_t>(features_a_task), begin + static_cast<std::int64_t>(count));
        auto field = static_cast<std::size_t>(std::ranges::upper_bound(layout.first, from) - layout.first.begin()) - 1;
        for (std::int64_t feature = from; feature < to; ++feature) {
            while (feature - layout.first[field] >= layout.sizes[field]) ++field;
            body(static_cast<std::size_t>(feature - begin), field, model.table + feature * layout.stride);
        }
    });
}

// Where a row has its vector for a field, and the sum of squares of that.
struct Place {
    Place(const FfmLayout& layout, float* row, std::size_t field) {
        const FfmLayout::Group& group = layout.groups[layout.group[field]];
        const std::int64_t within = static_cast<std::int64_t>(field) - group.first;
        vector = row + group.offset + within * layout.dim;
        squares = row + group.offset + std::int64_t{group.count} * layout.dim + within;
    }

    float *vector, *squares;
};

// Which of the n - 1 vectors of a plain array belongs to another field.
std::size_t plain_place(std::size_t own, std::size_t other) { return other < own ? other : other - 1; }

}  // namespace

void ffm_write(const Ffm& model, std::int64_t begin, std::size_t count, const float* vectors, const float* linear, float squares,
               std::size_t threads) {
    const FfmLayout& layout = *model.layout;
    const std::size_t n = layout.fields(), dim = static_cast<std::size_t>(layout.dim);
    for_features(model, begin, count, threads, [&](std::size_t i, std::size_t own, float* row) {
        for (std::size_t field = 0; field < n; ++field) {
            const Place place(layout, row, field);
            *place.squares = squares;
            if (field == own) {
                std::fill_n(place.vector, dim, 0.0f);
                *place.vector = linear[i];
            } else {
                std::copy_n(vectors + (i * (n - 1) + plain_place(own, field)) * dim, dim, place.vector);
            }
        }
    });
}

void ffm_read(const Ffm& model, std::int64_t begin, std::size_t count, float* vectors, float* linear, std::size_t threads) {
    const FfmLayout& layout = *model.layout;
    const std::size_t n = layout.fields(), dim = static_cast<std::size_t>(layout.dim);
    for_features(model, begin, count, threads, [&](std::size_t i, std::size_t own, float* row) {
        for (std::size_t field = 0; field < n; ++field) {
            const Place place(layout, row, field);
            if (field == own) linear[i] = *place.vector;
            else std::copy_n(place.vector, dim, vectors + (i * (n - 1) + plain_place(own, field)) * dim);
        }
    });
}

}  // namespace fm2
