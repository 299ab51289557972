#include "fm2/embedding.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "fm2/expect.h"
#include "fm2/hash.h"
#include "fm2/pool.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

// Finds the fields that share their rows, and checks that no others overlap.
std::vector<std::size_t> find_owners(const Layout& layout) {
    std::vector<std::size_t> order(layout.fields()), owner(layout.fields());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](std::size_t f) { return layout.offset[f]; });
    std::int64_t end = 0;
    std::size_t last = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
        const std::size_t f = order[i];
        const bool same =
            layout.offset[f] == layout.offset[last] && layout.dim[f] == layout.dim[last] && layout.size[f] == layout.size[last];
        if (i == 0 || !same) {
            expect(layout.offset[f] >= end, "layout: field ", f, " overlaps with another field");
            last = f;
        }
        owner[f] = last;
        end = layout.offset[f] + static_cast<std::int64_t>(layout.size[f]) * layout.dim[f];
    }
    return owner;
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
        width += dim[f];
        floats = std::max(floats, offset[f] + static_cast<std::int64_t>(size[f]) * dim[f]);
        equal_dims = equal_dims && dim[f] == dim[0];
    }
    owner = find_owners(*this);
    for (std::size_t f = 0; f < fields(); ++f) {
        first.push_back(owner[f] == f ? features : first[owner[f]]);
        if (owner[f] == f) features += size[f];
        else shares = true;
    }
}

void Dropout::check() const {
    for (const float probability : {element, field, value})
        expect(probability >= 0 && probability < 1, "dropout: a probability must be at least 0 and below 1, got ", probability);
}

namespace {

std::uint32_t threshold(float probability) { return static_cast<std::uint32_t>(static_cast<double>(probability) * 4294967296.0); }

}  // namespace

Mask::Mask(const Dropout& dropout, std::uint64_t step)
    : key(mix(mix(dropout.seed ^ 0x9e3779b97f4a7c15u, 0xd1342543de82ef95u) ^ step, 0xa0761d6478bd642fu)),
      element(threshold(dropout.element)),
      field(threshold(dropout.field)),
      scale(1 / ((1 - dropout.element) * (1 - dropout.field))),
      rows(dropout.rows.empty() ? nullptr : dropout.rows.data()) {}

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

// A thread's buffers for processing fields. They grow to the largest batch and are reused.
struct Workspace {
    std::vector<std::int32_t> slots, features;
    std::vector<float> sums, logit_sums;

    void reserve(std::size_t values, std::size_t dim) {
        if (slots.size() < values) {
            slots.resize(values);
            features.resize(values);
            logit_sums.resize(values);
        }
        if (sums.size() < values * dim) sums.resize(values * dim);
    }
};

using Fields = std::span<const std::size_t>;

// Calls body(field batch) for the fields whose values' slots follow each other.
template <class Body>
void for_fields(const Minibatch& batch, Fields fields, const std::int32_t* slots, const Body& body) {
    for (const std::size_t field : fields) {
        const BatchLists lists = batch.is_list(field) ? batch.lists(field) : BatchLists{};
        body(FieldBatch{field, batch.size(), slots, lists.offsets ? &lists : nullptr});
        slots += batch.count_values(field);
    }
}

// Clears the gradients of weights that are zero.
void clear_gradients_of_zeros(const Embeddings& table, const Distinct& distinct, float* sums) {
    const std::int64_t dim = table.layout->dim[distinct.field], offset = table.layout->offset[distinct.field];
    for (std::size_t i = 0; i < distinct.count; ++i, sums += dim)
        for (std::int64_t k = 0; k < dim; ++k)
            if (table.weights[offset + distinct.features[i] * dim + k] == 0) sums[k] = 0;
}

// Updates the rows of one field, or of several that share them.
void update_fields(const TableKernels& kernels, Minibatch& batch, std::span<const Update> updates, std::int64_t step, Fields fields) {
    static thread_local Workspace buffers;
    std::size_t dim = 1, values = 0;
    for (const Update& update : updates) dim = std::max(dim, static_cast<std::size_t>(update.table.layout->dim[fields[0]]));
    for (const std::size_t field : fields) values += batch.count_values(field);
    buffers.reserve(values, dim);

    const std::size_t count = batch.find_distinct(fields, buffers.features.data(), buffers.slots.data());
    const Distinct distinct{fields[0], count, buffers.features.data()};
    const float* summed_logits = nullptr;  // the gradients whose sums are in buffers.logit_sums
    for (const Update& update : updates) {
        const Gradient& gradient = update.gradient;
        const Embeddings& table = update.table;
        // For a factorization machine, lists are summed with the term that depends on the weights.
        const auto sum_logits = [&](const FieldBatch& rows) {
            if (!gradient.sums || !rows.lists) kernels.sum_logits(rows, gradient.logits, buffers.logit_sums.data());
        };
        if (gradient.logits && !gradient.rows && gradient.logits != summed_logits) {
            std::fill_n(buffers.logit_sums.begin(), count, 0.0f);
            for_fields(batch, fields, buffers.slots.data(), sum_logits);
            summed_logits = batch.has_lists() ? nullptr : gradient.logits;
        }
        if (gradient.rows || gradient.sums) {
            std::fill_n(buffers.sums.begin(), count * static_cast<std::size_t>(table.layout->dim[fields[0]]), 0.0f);
            for_fields(batch, fields, buffers.slots.data(),
                       [&](const FieldBatch& rows) { kernels.sum_gradients(rows, table, gradient, buffers.sums.data()); });
        }
        if (table.keep_zeros) clear_gradients_of_zeros(table, distinct, buffers.sums.data());
        const bool linear = !gradient.rows && !gradient.sums;
        kernels.update_rows(distinct, update, step, linear ? buffers.logit_sums.data() : buffers.sums.data(),
                            gradient.sums ? buffers.logit_sums.data() : nullptr);
    }
}

// The fields that are updated together, because they share rows in some table; first the groups with the most work.
std::vector<std::vector<std::size_t>> group_fields(const Minibatch& batch, std::span<const Update> updates) {
    std::vector<std::size_t> owner;
    for (const Update& update : updates) {
        if (!update.table.layout->shares) continue;
        expect(owner.empty() || owner == update.table.layout->owner,
               "update: all tables with shared rows must share those of the same fields");
        owner = update.table.layout->owner;
    }
    if (owner.empty()) {
        owner.resize(batch.fields());
        std::iota(owner.begin(), owner.end(), 0);
    }
    std::vector<std::vector<std::size_t>> members(batch.fields());
    for (const std::size_t field : batch.by_size()) members[owner[field]].push_back(field);
    std::vector<std::vector<std::size_t>> groups;
    for (const std::size_t field : batch.by_size())
        if (owner[field] == field) groups.push_back(std::move(members[field]));
    const auto work = [&](const std::vector<std::size_t>& fields) {
        std::size_t values = 0;
        for (const std::size_t field : fields) values += batch.count_values(field);
        return values;
    };
    std::ranges::stable_sort(groups, std::greater(), work);
    return groups;
}

// Updates the rows of fields that share them in some of the tables.
void update_group(const TableKernels& kernels, Minibatch& batch, std::span<const Update> updates, std::int64_t step, Fields fields) {
    if (fields.size() == 1) return update_fields(kernels, batch, updates, step, fields);
    for (const Update& update : updates) {
        if (update.table.layout->shares) update_fields(kernels, batch, {&update, 1}, step, fields);
        else
            for (std::size_t i = 0; i < fields.size(); ++i) update_fields(kernels, batch, {&update, 1}, step, fields.subspan(i, 1));
    }
}

}  // namespace

void update(const Kernels& kernels, Minibatch& batch, std::span<const Update> updates, std::int64_t step, std::size_t threads) {
    expect(batch.is_indexed(), "update: the batch has not been compacted");
    const bool shares = std::ranges::any_of(updates, [](const Update& update) { return update.table.layout->shares; });
    if (!shares && !batch.has_lists()) {
        // Largest fields first, so that no thread is still busy with one at the end.
        const auto& fields = batch.by_size();
        return parallel_for(fields.size(), threads,
                            [&](std::size_t i) { update_fields(kernels.tables, batch, updates, step, {&fields[i], 1}); });
    }
    const auto groups = group_fields(batch, updates);
    parallel_for(groups.size(), threads, [&](std::size_t i) { update_group(kernels.tables, batch, updates, step, groups[i]); });
}

}  // namespace fm2
