#include "fm2/ranker.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fm2/pool.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

bool better(const TopRow& a, const TopRow& b) { return a.score > b.score || (a.score == b.score && a.row < b.row); }

// The best k rows so far: a heap with the worst of them on top.
class TopHeap {
public:
    explicit TopHeap(std::size_t k) : k_(k) {}

    void offer(const float* scores, std::size_t count, std::int64_t first) {
        for (std::size_t i = 0; i < count; ++i) {
            const float score = std::isnan(scores[i]) ? -std::numeric_limits<float>::infinity() : scores[i];  // NaN cannot be compared
            if (heap_.size() == k_ && !(score > heap_.front().score)) continue;  // later rows lose ties
            if (heap_.size() == k_) {
                std::pop_heap(heap_.begin(), heap_.end(), better);
                heap_.pop_back();
            }
            heap_.push_back({score, first + static_cast<std::int64_t>(i)});
            std::push_heap(heap_.begin(), heap_.end(), better);
        }
    }

    std::vector<TopRow> take() { return std::move(heap_); }

private:
    std::size_t k_;
    std::vector<TopRow> heap_;
};

std::vector<TopRow> best_of(std::vector<TopRow> rows, std::size_t k) {
    std::ranges::sort(rows, better);
    rows.resize(std::min(k, rows.size()));
    return rows;
}

}  // namespace

std::vector<TopRow> top_scores(const float* scores, std::size_t count, std::size_t k) {
    if (!k) return {};
    TopHeap heap(k);
    heap.offer(scores, count, 0);
    return best_of(heap.take(), k);
}

std::vector<TopRow> top_rows(const Kernels& kernels, const float* rows, std::size_t stride, std::size_t count, const float* vector,
                             std::size_t width, std::size_t k, std::size_t threads) {
    constexpr std::size_t block = 256, rows_per_task = 1 << 15;
    if (!k) return {};
    std::vector<std::vector<TopRow>> parts((count + rows_per_task - 1) / rows_per_task);
    parallel_for(parts.size(), threads, [&](std::size_t task) {
        TopHeap heap(k);
        float scores[block];
        for (std::size_t begin = task * rows_per_task; begin < std::min(count, (task + 1) * rows_per_task); begin += block) {
            const std::size_t size = std::min({block, count - begin, (task + 1) * rows_per_task - begin});
            kernels.scoring.inner_products(rows + begin * stride, stride, size, vector, width, scores);
            heap.offer(scores, size, static_cast<std::int64_t>(begin));
        }
        parts[task] = heap.take();
    });
    std::vector<TopRow> all;
    for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
    return best_of(std::move(all), k);
}

}  // namespace fm2
