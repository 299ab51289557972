#include "fm2/top.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fm2/pool.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

bool better(const Found& a, const Found& b) { return a.score > b.score || (a.score == b.score && a.row < b.row); }

// The best so far: a heap with the worst of them on top.
class Best {
public:
    explicit Best(std::size_t k) : k_(k) {}

    void offer(const float* scores, std::size_t count, std::int64_t first) {
        for (std::size_t i = 0; i < count; ++i) {
            const float score = std::isnan(scores[i]) ? -std::numeric_limits<float>::infinity() : scores[i];  // it can be compared
            if (heap_.size() == k_ && !(score > heap_.front().score)) continue;  // later rows lose ties
            if (heap_.size() == k_) {
                std::pop_heap(heap_.begin(), heap_.end(), better);
                heap_.pop_back();
            }
            heap_.push_back({score, first + static_cast<std::int64_t>(i)});
            std::push_heap(heap_.begin(), heap_.end(), better);
        }
    }

    std::vector<Found> take() { return std::move(heap_); }

private:
    std::size_t k_;
    std::vector<Found> heap_;
};

std::vector<Found> best_of(std::vector<Found> found, std::size_t k) {
    std::ranges::sort(found, better);
    found.resize(std::min(k, found.size()));
    return found;
}

}  // namespace

std::vector<Found> top_scores(const float* scores, std::size_t count, std::size_t k) {
    if (!k) return {};
    Best best(k);
    best.offer(scores, count, 0);
    return best_of(best.take(), k);
}

std::vector<Found> top_rows(const Kernels& kernels, const float* rows, std::size_t stride, std::size_t count, const float* vector,
                            std::size_t width, std::size_t k, std::size_t threads) {
    constexpr std::size_t block = 256, rows_a_task = 1 << 15;
    if (!k) return {};
    std::vector<std::vector<Found>> parts((count + rows_a_task - 1) / rows_a_task);
    parallel_for(parts.size(), threads, [&](std::size_t task) {
        Best best(k);
        float scores[block];
        for (std::size_t begin = task * rows_a_task; begin < std::min(count, (task + 1) * rows_a_task); begin += block) {
            const std::size_t some = std::min({block, count - begin, (task + 1) * rows_a_task - begin});
            kernels.scoring.dots(rows + begin * stride, stride, some, vector, width, scores);
            best.offer(scores, some, static_cast<std::int64_t>(begin));
        }
        parts[task] = best.take();
    });
    std::vector<Found> all;
    for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
    return best_of(std::move(all), k);
}

}  // namespace fm2
