#include "fm2/embedding.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "fm2/expect.h"
#include "fm2/hash.h"
#include "fm2/pool.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

void check_no_overlap(const Layout& layout) {
    std::vector<std::size_t> order(layout.fields());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](std::size_t f) { return layout.offset[f]; });
    std::int64_t end = 0;
    for (const std::size_t f : order) {
        expect(layout.offset[f] >= end, "layout: field ", f, " overlaps with another field");
        end = layout.offset[f] + static_cast<std::int64_t>(layout.size[f]) * layout.dim[f];
    }
}

}  // namespace

Layout::Layout(std::vector<std::int64_t> offsets, std::vector<std::int32_t> dims, std::vector<std::int32_t> sizes)
    : offset(std::move(offsets)), dim(std::move(dims)), size(std::move(sizes)) {
    expect(!dim.empty() && offset.size() == dim.size() && size.size() == dim.size(),
           "layout: offset, dim and size must have one entry per field, and at least one");
    for (std::size_t f = 0; f < fields(); ++f) {
        expect(dim[f] >= 1 && dim[f] <= max_dim, "layout: field ", f, ": the dimension must be between 1 and ", max_dim, ", got ", dim[f]);
        expect(size[f] >= 1, "layout: field ", f, " needs at least one feature, got ", size[f]);
        expect(offset[f] >= 0 && offset[f] <= std::int64_t{1} << 48, "layout: field ", f, ": offset out of range: ", offset[f]);
        expect(width <= std::numeric_limits<std::int32_t>::max() - dim[f], "layout: field ", f, ": a row would have 2^31 or more columns");
        start.push_back(width);
        first.push_back(features);
        width += dim[f];
        features += size[f];
        floats = std::max(floats, offset[f] + static_cast<std::int64_t>(size[f]) * dim[f]);
        equal_dims = equal_dims && dim[f] == dim[0];
    }
    check_no_overlap(*this);
}

namespace {

std::uint32_t threshold(float probability) {
    expect(probability >= 0 && probability < 1, "dropout: a probability must be at least 0 and below 1, got ", probability);
    return static_cast<std::uint32_t>(static_cast<double>(probability) * 4294967296.0);
}

}  // namespace

Mask::Mask(const Dropout& dropout, std::uint64_t step)
    : key(mix(mix(dropout.seed ^ 0x9e3779b97f4a7c15u, 0xd1342543de82ef95u) ^ step, 0xa0761d6478bd642fu)),
      element(threshold(dropout.element)),
      field(threshold(dropout.field)),
      scale(1 / ((1 - dropout.element) * (1 - dropout.field))) {}

namespace {

constexpr std::size_t rows_per_task = 64;

}  // namespace

void gather(const Kernels& kernels, const Minibatch& batch, const Embeddings& table, const Mask& mask, float* out, std::size_t threads) {
    parallel_ranges(batch.size(), rows_per_task, threads,
                    [&](std::size_t begin, std::size_t end) { kernels.tables.gather({batch, table, begin, end}, mask, out); });
}

void score(const Kernels& kernels, const Minibatch& batch, const Embeddings* linear, const Embeddings* factors, const float* signs,
           float* logits, float* sums, std::size_t threads) {
    constexpr std::size_t few_rows = 512;  // below this, summing linear weights takes no longer than waking a second thread
    parallel_ranges(batch.size(), rows_per_task, !factors && batch.size() < few_rows ? 1 : threads,
                    [&](std::size_t begin, std::size_t end) {
                        std::fill(logits + begin, logits + end, 0.0f);
                        if (linear) kernels.tables.add_linear({batch, *linear, begin, end}, logits);
                        if (factors) kernels.tables.add_pairs({batch, *factors, begin, end}, signs, logits, sums);
                    });
}

void finish_average(const Kernels& kernels, const Embeddings& table, std::int64_t step, std::size_t threads) {
    constexpr std::size_t features_per_task = 4096;
    for (std::size_t field = 0; field < table.layout->fields(); ++field) {
        const std::size_t size = static_cast<std::size_t>(table.layout->size[field]);
        parallel_ranges(size, features_per_task, threads,
                        [&](std::size_t begin, std::size_t end) { kernels.tables.finish_average(table, field, begin, end, step); });
    }
}

namespace {

// A thread's buffers for processing a field. They grow to the largest batch and are reused.
struct Workspace {
    std::vector<std::int32_t> slots, features;
    std::vector<float> sums, logit_sums;

    void reserve(std::size_t rows, std::size_t dim) {
        if (slots.size() < rows) {
            slots.resize(rows);
            features.resize(rows);
            logit_sums.resize(rows);
        }
        if (sums.size() < rows * dim) sums.resize(rows * dim);
    }
};

void update_field(const TableKernels& kernels, Minibatch& batch, std::span<const Update> updates, std::int64_t step, std::size_t field) {
    static thread_local Workspace buffers;
    std::int32_t dim = 1;
    for (const Update& update : updates) dim = std::max(dim, update.table.layout->dim[field]);
    buffers.reserve(batch.size(), static_cast<std::size_t>(dim));

    const std::size_t count = batch.find_distinct(field, buffers.features.data(), buffers.slots.data());
    const FieldBatch rows{field, batch.size(), buffers.slots.data(), count, buffers.features.data()};
    const float* summed_logits = nullptr;  // the gradients whose sums are in buffers.logit_sums
    for (const Update& update : updates) {
        const Gradient& gradient = update.gradient;
        if (gradient.logits && !gradient.rows && gradient.logits != summed_logits) {
            kernels.sum_logits(rows, gradient.logits, buffers.logit_sums.data());
            summed_logits = gradient.logits;
        }
        if (gradient.rows || gradient.sums) kernels.sum_gradients(rows, *update.table.layout, gradient, buffers.sums.data());
        const bool linear = !gradient.rows && !gradient.sums;
        kernels.update_rows(rows, update, step, linear ? buffers.logit_sums.data() : buffers.sums.data(),
                            gradient.sums ? buffers.logit_sums.data() : nullptr);
    }
}

}  // namespace

void update(const Kernels& kernels, Minibatch& batch, std::span<const Update> updates, std::int64_t step, std::size_t threads) {
    // Largest fields first, so that no thread is still busy with one at the end.
    const auto& fields = batch.by_size();
    parallel_for(fields.size(), threads, [&](std::size_t i) { update_field(kernels.tables, batch, updates, step, fields[i]); });
}

}  // namespace fm2
