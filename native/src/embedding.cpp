#include "fm2/embedding.h"

#include <algorithm>

#include "fm2/pool.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

constexpr std::size_t rows_per_task = 64;

// Calls body(begin, end) for ranges of the batch's rows.
template <class Body>
void by_rows(const Minibatch& batch, std::size_t threads, const Body& body) {
    parallel_for((batch.size() + rows_per_task - 1) / rows_per_task, threads,
                 [&](std::size_t task) { body(task * rows_per_task, std::min(batch.size(), (task + 1) * rows_per_task)); });
}

}  // namespace

void gather(const Kernels& kernels, const Minibatch& batch, const Embeddings& table, const Mask& mask, float* out, std::size_t threads) {
    by_rows(batch, threads, [&](std::size_t begin, std::size_t end) { kernels.tables.gather({batch, table, begin, end}, mask, out); });
}

void score(const Kernels& kernels, const Minibatch& batch, const Embeddings* linear, const Embeddings* factors, const float* signs,
           float* logits, float* sums, std::size_t threads) {
    constexpr std::size_t few_rows = 512;  // below this, summing linear weights takes no longer than waking a second thread
    by_rows(batch, !factors && batch.size() < few_rows ? 1 : threads, [&](std::size_t begin, std::size_t end) {
        std::fill(logits + begin, logits + end, 0.0f);
        if (linear) kernels.tables.add_linear({batch, *linear, begin, end}, logits);
        if (factors) kernels.tables.add_pairs({batch, *factors, begin, end}, signs, logits, sums);
    });
}

void finish_average(const Kernels& kernels, const Embeddings& table, std::int64_t step, std::size_t threads) {
    constexpr std::size_t features_per_task = 4096;
    for (std::size_t field = 0; field < table.layout->fields(); ++field) {
        const std::size_t size = static_cast<std::size_t>(table.layout->size[field]);
        parallel_for((size + features_per_task - 1) / features_per_task, threads, [&](std::size_t task) {
            const std::size_t begin = task * features_per_task;
            kernels.tables.finish_average(table, field, begin, std::min(size, begin + features_per_task), step);
        });
    }
}

}  // namespace fm2
