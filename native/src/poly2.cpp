#include "fm2/poly2.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "fm2/pool.h"
#include "fm2/training.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

// A few rows of a batch, and a buffer for the buckets of their pairs.
class Tile {
public:
    Tile(const Poly2& model, const Minibatch& batch)
        : model_(model),
          batch_(batch),
          features_(poly2_tile(model) * batch.fields()),
          keys_(features_.size()),
          buckets_(poly2_tile(model) * poly2_pairs(model, batch.fields())) {}

    // Loads rows [from, to) of the tile; the first row of the tile is row `begin` of the batch.
    void load(std::size_t begin, std::size_t from, std::size_t to) {
        std::uint64_t first = 0;
        for (std::size_t f = 0; f < batch_.fields(); ++f) {
            for (std::size_t r = from; r < to; ++r) {
                const std::int32_t id = batch_.ids(f)[begin + r];
                features_[r * batch_.fields() + f] = first + static_cast<std::uint64_t>(id);
                if (!buckets_.empty()) keys_[r * batch_.fields() + f] = poly2_key(f, id);
            }
            first += static_cast<std::uint64_t>(batch_.sizes()[f]);
        }
    }

    Poly2Tile view(std::size_t rows) { return {model_, batch_.fields(), rows, features_.data(), keys_.data(), buckets_.data()}; }

private:
    const Poly2& model_;
    const Minibatch& batch_;
    std::vector<std::uint64_t> features_, keys_;
    std::vector<std::uint32_t> buckets_;
};

// poly2_step without pairs. Every thread sums the weights of its groups of fields, computes the gradients of all rows, and updates its
// groups. Consecutive tiles use different sums, so threads wait for each other only once per tile.
double linear_step(const Kernels& kernels, const Poly2& model, const Minibatch& batch, const float* labels, const float* weights,
                   const Optimizer& optimizer, std::size_t threads) {
    std::vector<std::uint64_t> first(batch.fields());
    for (std::size_t f = 1; f < batch.fields(); ++f) first[f] = first[f - 1] + static_cast<std::uint64_t>(batch.sizes()[f - 1]);
    const std::size_t tile_rows = max_poly2_tile, groups = LinearTile{model, batch, first.data(), 0, 0}.groups();
    std::vector<float> sums(2 * (groups + 1) * tile_rows), ones(tile_rows, 1.0f);
    double loss = 0;
    threads = batch.size() <= 2 * tile_rows ? 1 : std::min(threads ? threads : default_threads(), groups);
    parallel_team(threads, [&](const Member& member) {
        const Poly2Part part{member.number, member.of, nullptr};
        float logits[max_poly2_tile], losses[max_poly2_tile], gradients[max_poly2_tile];
        std::size_t turn = 0;
        for (std::size_t begin = 0; begin < batch.size(); begin += tile_rows, turn = 1 - turn) {
            const LinearTile tile{model, batch, first.data(), begin, std::min(tile_rows, batch.size() - begin)};
            float* tile_sums = sums.data() + turn * (groups + 1) * tile_rows;  // the last one holds the bias
            for (std::size_t group = part.number; group < groups; group += part.of)
                kernels.poly2.sum_group(tile, group, tile_sums + group * tile_rows);
            if (part.number == 0) tile_sums[groups * tile_rows] = model.bias[0];
            member.barrier.wait();
            std::fill(logits, logits + tile.rows, tile_sums[groups * tile_rows]);
            for (std::size_t group = 0; group < groups; ++group)
                for (std::size_t r = 0; r < tile.rows; ++r) logits[r] += tile_sums[group * tile_rows + r];
            kernels.logistic(logits, labels + begin, weights ? weights + begin : ones.data(), tile.rows, losses, gradients);
            if (part.number == 0) loss = std::accumulate(losses, losses + tile.rows, loss);
            kernels.poly2.update_groups(tile, part, gradients, optimizer);
        }
    });
    return mean_loss(loss, weights, batch.size());
}

}  // namespace

void poly2_score(const Kernels& kernels, const Poly2& model, const Minibatch& batch, float* logits, std::size_t threads) {
    const std::size_t tile_rows = poly2_tile(model);
    parallel_ranges(batch.size(), 8 * tile_rows, threads, [&](std::size_t first, std::size_t end) {
        Tile tile(model, batch);
        for (std::size_t begin = first; begin < end; begin += tile_rows) {
            const std::size_t rows = std::min(tile_rows, end - begin);
            tile.load(begin, 0, rows);
            kernels.poly2.score(tile.view(rows), 0, rows, logits + begin);
        }
    });
}

double poly2_step(const Kernels& kernels, const Poly2& model, const Minibatch& batch, const float* labels, const float* weights,
                  const Poly2Optimizers& optimizers, std::size_t threads) {
    if (!model.hash_bits) return linear_step(kernels, model, batch, labels, weights, optimizers.linear, threads);
    const std::size_t tile_rows = poly2_tile(model);
    threads = batch.size() <= 2 * tile_rows ? 1 : std::min(threads ? threads : default_threads(), tile_rows);
    Tile tile(model, batch);
    std::vector<std::vector<std::uint32_t>> scratch(threads, std::vector<std::uint32_t>(2 * (poly2_pairs(model, batch.fields()) + 1)));
    float logits[max_poly2_tile], losses[max_poly2_tile], gradients[max_poly2_tile], ones[max_poly2_tile];
    std::fill(std::begin(ones), std::end(ones), 1.0f);
    double loss = 0;
    parallel_team(threads, [&](const Member& member) {
        const Poly2Part part{member.number, member.of, scratch[member.number].data()};
        for (std::size_t begin = 0; begin < batch.size(); begin += tile_rows) {
            const std::size_t rows = std::min(tile_rows, batch.size() - begin);
            const std::size_t from = rows * part.number / part.of, to = rows * (part.number + 1) / part.of;
            tile.load(begin, from, to);
            kernels.poly2.score(tile.view(rows), from, to, logits);
            const float* tile_weights = weights ? weights + begin : ones;
            kernels.logistic(logits + from, labels + begin + from, tile_weights + from, to - from, losses + from, gradients + from);
            member.barrier.wait();
            if (member.number == 0) loss = std::accumulate(losses, losses + rows, loss);
            kernels.poly2.update(tile.view(rows), part, gradients, optimizers);
            member.barrier.wait();
        }
    });
    return mean_loss(loss, weights, batch.size());
}

}  // namespace fm2
