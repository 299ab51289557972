#include <algorithm>
#include <vector>

#include "fm2/embedding.h"
#include "fm2/pool.h"
#include "kernels/kernels.h"

namespace fm2 {
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
