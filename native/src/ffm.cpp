#include "fm2/ffm.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fm2/loss.h"
#include "fm2/pool.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

using Block = FfmLayout::Block;

std::int64_t pairs_of(const FfmLayout& layout, const Block& block) {
    const std::int64_t a = layout.groups[block.a].count, b = layout.groups[block.b].count;
    return block.a == block.b ? a * (a - 1) / 2 + a : a * b;
}

// Blocks [begin, end).
struct Share {
    std::size_t begin, end;
};

// Assigns consecutive blocks to a member, with about the same number of pairs for each member.
Share share_of(const FfmLayout& layout, const Member& member) {
    std::int64_t total = 0;
    for (const Block& block : layout.blocks) total += pairs_of(layout, block);
    const auto members = static_cast<std::int64_t>(member.of), number = static_cast<std::int64_t>(member.number);
    std::int64_t done = 0;
    Share share{0, 0};
    for (std::size_t b = 0; b < layout.blocks.size(); ++b) {
        const std::int64_t next = done + pairs_of(layout, layout.blocks[b]);
        const std::int64_t owner = (done + next) * members / (2 * total);  // the member that owns the middle of the block
        if (owner < number) share.begin = b + 1;
        if (owner <= number) share.end = b + 1;
        done = next;
    }
    return share;
}

// The rows [begin, begin + rows) of a batch.
class Tile {
public:
    Tile(const Kernels& kernels, const Ffm& model, const Minibatch& batch)
        : kernels_(kernels.ffm), model_(model), batch_(batch), weights_(ffm_tile * batch.fields()) {}

    void load(std::size_t begin, std::size_t rows) {
        const FfmLayout& layout = *model_.layout;
        for (std::size_t f = 0; f < layout.fields(); ++f)
            for (std::size_t r = 0; r < rows; ++r)
                weights_[r * layout.fields() + f] = model_.table + (layout.first[f] + batch_.ids(f)[begin + r]) * layout.stride;
        rows_ = rows;
    }

    void score(const Share& share, FfmTerms& terms) const { kernels_.score(view(), share.begin, share.end, terms); }

    void update(const Share& share, const float* gradients, const FfmOptimizers& optimizers) const {
        kernels_.update(view(), share.begin, share.end, gradients, optimizers);
    }

private:
    FfmTile view() const { return {*model_.layout, rows_, weights_.data()}; }

    const FfmKernels& kernels_;
    const Ffm& model_;
    const Minibatch& batch_;
    std::vector<float*> weights_;
    std::size_t rows_ = 0;
};

// The contributions of the blocks to each row of a tile. They are summed in the order of the blocks, whichever thread scored them.
struct alignas(64) Terms {
    float sum(std::size_t row, std::size_t blocks, float bias) const {
        float logit = bias;
        for (std::size_t b = 0; b < blocks; ++b) logit += by_block[b][row];
        return logit;
    }

    FfmTerms by_block;
};

// The bias is updated like a linear weight. Every member computes its own, identical copy.
struct Bias {
    void update(float gradient, const Optimizer& optimizer) {
        squares += gradient * gradient;
        value -= optimizer.learning_rate * gradient / std::sqrt(squares + std::max(optimizer.epsilon * optimizer.epsilon, 1e-30f));
    }

    float value, squares;
};

}  // namespace

void ffm_score(const Kernels& kernels, const Ffm& model, const Minibatch& batch, float* logits, std::size_t threads) {
    constexpr std::size_t tiles_per_task = 8;
    const Share all{0, model.layout->blocks.size()};
    const std::size_t tiles = (batch.size() + ffm_tile - 1) / ffm_tile;
    parallel_for((tiles + tiles_per_task - 1) / tiles_per_task, threads, [&](std::size_t task) {
        Tile tile(kernels, model, batch);
        Terms terms;
        for (std::size_t t = task * tiles_per_task; t < std::min(tiles, (task + 1) * tiles_per_task); ++t) {
            const std::size_t begin = t * ffm_tile, rows = std::min(ffm_tile, batch.size() - begin);
            tile.load(begin, rows);
            tile.score(all, terms.by_block);
            for (std::size_t r = 0; r < rows; ++r) logits[begin + r] = terms.sum(r, all.end, model.bias[0]);
        }
    });
}

double ffm_step(const Kernels& kernels, const Ffm& model, const Minibatch& batch, const float* labels, const float* weights,
                const FfmOptimizers& optimizers, std::size_t threads) {
    const FfmLayout& layout = *model.layout;
    const std::vector<Block>& blocks = layout.blocks;
    threads = batch.size() <= 2 * ffm_tile ? 1 : std::min(threads ? threads : default_threads(), blocks.size());
    std::vector<Tile> tiles(threads, Tile(kernels, model, batch));
    Terms terms[2];  // members that are ahead write one while others still read the other
    double loss = 0;
    parallel_team(threads, [&](const Member& member) {
        const Share share = share_of(layout, member);
        Tile& tile = tiles[member.number];
        Bias bias{model.bias[0], model.bias[1]};
        float logits[ffm_tile], losses[ffm_tile], gradients[ffm_tile], ones[ffm_tile];
        std::fill(std::begin(ones), std::end(ones), 1.0f);
        for (std::size_t begin = 0; begin < batch.size(); begin += ffm_tile) {
            const std::size_t rows = std::min(ffm_tile, batch.size() - begin);
            Terms& shared = terms[begin / ffm_tile % 2];
            tile.load(begin, rows);
            tile.score(share, shared.by_block);
            member.barrier.wait();
            for (std::size_t r = 0; r < rows; ++r) logits[r] = shared.sum(r, blocks.size(), bias.value);
            kernels.logistic(logits, labels + begin, weights ? weights + begin : ones, rows, losses, gradients);
            if (member.number == 0) loss = std::accumulate(losses, losses + rows, loss);
            tile.update(share, gradients, optimizers);
            for (std::size_t r = 0; r < rows; ++r) bias.update(gradients[r], optimizers.linear);
        }
        if (member.number) return;
        model.bias[0] = bias.value;
        model.bias[1] = bias.squares;
    });
    return mean_loss(loss, weights, batch.size());
}

}  // namespace fm2
