#include <algorithm>
#include <vector>

#include "fm2/embedding.h"
#include "fm2/pool.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

// What a thread needs to work on a field; it grows to the largest batch and stays.
struct Workspace {
    std::vector<std::int32_t> slots, features;
    std::vector<float> sums, masses;

    void fit(std::size_t rows, std::size_t dim) {
        if (slots.size() < rows) slots.resize(rows), features.resize(rows), masses.resize(rows);
        if (sums.size() < rows * dim) sums.resize(rows * dim);
    }
};

void update_field(const TableKernels& kernels, Minibatch& batch, std::span<const Update> updates, std::int64_t step,
                  std::size_t field) {
    static thread_local Workspace work;
    std::int32_t dim = 1;
    for (const Update& update : updates) dim = std::max(dim, update.table.layout->dim[field]);
    work.fit(batch.size(), static_cast<std::size_t>(dim));

    const std::size_t count = batch.find_distinct(field, work.features.data(), work.slots.data());
    const FieldBatch rows{field, batch.size(), work.slots.data(), count, work.features.data()};
    const float* in_masses = nullptr;  // which logits' gradients the masses are sums of
    for (const Update& update : updates) {
        const Gradient& gradient = update.gradient;
        if (gradient.logits && !gradient.rows && gradient.logits != in_masses) {
            kernels.sum_logits(rows, gradient.logits, work.masses.data());
            in_masses = gradient.logits;
        }
        if (gradient.rows || gradient.sums) kernels.sum_gradients(rows, *update.table.layout, gradient, work.sums.data());
        const bool linear = !gradient.rows && !gradient.sums;
        kernels.move(rows, update, step, linear ? work.masses.data() : work.sums.data(), gradient.sums ? work.masses.data() : nullptr);
    }
}

}  // namespace

void update(const Kernels& kernels, Minibatch& batch, std::span<const Update> updates, std::int64_t step, std::size_t threads) {
    // The largest fields first, so that no thread is left with one of them at the end.
    const auto& fields = batch.by_size();
    parallel_for(fields.size(), threads,
                 [&](std::size_t i) { update_field(kernels.tables, batch, updates, step, fields[i]); });
}

}  // namespace fm2
