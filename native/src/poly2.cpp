#include "fm2/poly2.h"

#include <algorithm>
#include <vector>

#include "fm2/pool.h"
#include "kernels/kernels.h"
#include "logistic.h"

namespace fm2 {
namespace {

// A few rows of a batch, and room for the places of their weights.
class Tile {
public:
    Tile(const Poly2& model, const Minibatch& batch)
        : model_(model), batch_(batch), features_(poly2_tile(model) * batch.fields()), keys_(features_.size()),
          places_(poly2_tile(model) * poly2_pairs(model, batch.fields())) {}

    // Takes some rows: the tile's [from, to), where the batch's row `begin` is the tile's first.
    void load(std::size_t begin, std::size_t from, std::size_t to) {
        std::uint64_t first = 0;
        for (std::size_t f = 0; f < batch_.fields(); ++f) {
            for (std::size_t r = from; r < to; ++r) {
                const std::int32_t id = batch_.ids(f)[begin + r];
                features_[r * batch_.fields() + f] = first + static_cast<std::uint64_t>(id);
                keys_[r * batch_.fields() + f] = poly2_key(f, id);
            }
            first += static_cast<std::uint64_t>(batch_.sizes()[f]);
        }
    }

    Poly2Tile view(std::size_t rows) { return {model_, batch_.fields(), rows, features_.data(), keys_.data(), places_.data()}; }

private:
    const Poly2& model_;
    const Minibatch& batch_;
    std::vector<std::uint64_t> features_, keys_;
    std::vector<std::uint32_t> places_;
};

}  // namespace

void poly2_score(const Kernels& kernels, const Poly2& model, const Minibatch& batch, float* logits, std::size_t threads) {
    constexpr std::size_t tiles_a_task = 8;
    const std::size_t tile_rows = poly2_tile(model), tiles = (batch.size() + tile_rows - 1) / tile_rows;
    parallel_for((tiles + tiles_a_task - 1) / tiles_a_task, threads, [&](std::size_t task) {
        Tile tile(model, batch);
        for (std::size_t t = task * tiles_a_task; t < std::min(tiles, (task + 1) * tiles_a_task); ++t) {
            const std::size_t begin = t * tile_rows, rows = std::min(tile_rows, batch.size() - begin);
            tile.load(begin, 0, rows);
            kernels.poly2.score(tile.view(rows), 0, rows, logits + begin);
        }
    });
}

double poly2_step(const Kernels& kernels, const Poly2& model, const Minibatch& batch, const float* labels, const float* weights,
                  const Poly2Optimisers& optimisers, std::size_t threads) {
    const std::size_t tile_rows = poly2_tile(model);
    threads = batch.size() <= 2 * tile_rows ? 1 : std::min(threads ? threads : default_threads(), tile_rows);
    Tile tile(model, batch);
    std::vector<std::vector<std::uint32_t>> rooms(threads, std::vector<std::uint32_t>(2 * (poly2_pairs(model, batch.fields()) + 1)));
    float logits[max_poly2_tile];
    Logistic loss;
    parallel_team(threads, [&](const Member& member) {
        const Poly2Part part{member.number, member.of, rooms[member.number].data()};
        Logistic own_loss;
        for (std::size_t begin = 0; begin < batch.size(); begin += tile_rows) {
            const std::size_t rows = std::min(tile_rows, batch.size() - begin);
            const std::size_t from = rows * part.number / part.of, to = rows * (part.number + 1) / part.of;
            tile.load(begin, from, to);
            kernels.poly2.score(tile.view(rows), from, to, logits);
            member.barrier.wait();
            float slopes[max_poly2_tile];
            for (std::size_t r = 0; r < rows; ++r)
                slopes[r] = own_loss.add(logits[r], labels[begin + r], weights ? weights[begin + r] : 1);
            kernels.poly2.move(tile.view(rows), part, slopes, optimisers);
            member.barrier.wait();
        }
        if (member.number == 0) loss = own_loss;
    });
    return loss.mean();
}

}  // namespace fm2
