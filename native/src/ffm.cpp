#include "fm2/ffm.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "aligned_buffer.h"
#include "fm2/expect.h"
#include "fm2/pool.h"
#include "fm2/training.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

constexpr std::int32_t max_groups = 4;  // ten blocks: enough for as many threads as the memory bandwidth can feed
constexpr std::int32_t floats_per_cache_line = 16;

// Returns where each group begins, and where the last one ends. Kernels process four fields at a time on the later side of a pair, so
// with enough fields, the size of every group but the first is a multiple of four.
std::vector<std::int32_t> group_bounds(std::int32_t fields) {
    const std::int32_t groups = std::min(fields, max_groups);
    std::vector<std::int32_t> bounds;
    for (std::int32_t g = 0; g <= groups; ++g) {
        const std::int32_t remaining = fields - fields * g / groups;
        bounds.push_back(fields - (fields < 4 * groups || g == 0 ? remaining : (remaining + 2) / 4 * 4));
    }
    return bounds;
}

// Adds the pairs between the two halves of the groups, then those within each half.
void add_blocks(std::size_t begin, std::size_t end, std::vector<FfmLayout::Block>& blocks) {
    if (end - begin == 1) return blocks.push_back({begin, begin});
    const std::size_t middle = (begin + end) / 2;
    for (std::size_t a = begin; a < middle; ++a)
        for (std::size_t b = middle; b < end; ++b) blocks.push_back({a, b});
    add_blocks(begin, middle, blocks);
    add_blocks(middle, end, blocks);
}

}  // namespace

FfmLayout::FfmLayout(std::vector<std::int32_t> all_sizes, std::int32_t all_dim) : sizes(std::move(all_sizes)), dim(all_dim) {
    expect(fields() >= 2 && fields() <= max_fields, "ffm: the number of fields must be between 2 and ", max_fields, ", got ", fields());
    expect(dim >= 1 && dim <= max_dim, "ffm: the dimension must be between 1 and ", max_dim, ", got ", dim);
    for (const std::int32_t size : sizes) {
        expect(size >= 1, "ffm: every field needs at least one feature, got ", size);
        first.push_back(features);
        features += size;
    }
    const std::vector<std::int32_t> bounds = group_bounds(static_cast<std::int32_t>(fields()));
    for (std::size_t g = 0; g + 1 < bounds.size(); ++g) {
        const std::int32_t count = bounds[g + 1] - bounds[g];
        const std::int32_t lines = (count * (dim + 1) + floats_per_cache_line - 1) / floats_per_cache_line;
        const std::int32_t section = lines * floats_per_cache_line;
        groups.push_back({bounds[g], count, stride, section});
        group.insert(group.end(), static_cast<std::size_t>(count), g);
        stride += section;
    }
    floats = features * stride;
    add_blocks(0, groups.size(), blocks);
}

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
        : kernels_(kernels.ffm), model_(model), batch_(batch), weights_(ffm_tile * batch.fields()) {
        const FfmLayout& layout = *model.layout;
        for (std::size_t f = 0; f < layout.fields(); ++f)
            if (batch.is_list(f)) lists_.push_back({f, model.table + layout.first[f] * layout.stride, batch.lists(f)});
        if (!lists_.empty()) buffers_.reserve((lists_.size() + 1) * row_bytes());
    }

    void load(std::size_t begin, std::size_t rows) {
        const FfmLayout& layout = *model_.layout;
        for (std::size_t f = 0; f < layout.fields(); ++f)
            for (std::size_t r = 0; r < rows; ++r)
                weights_[r * layout.fields() + f] = model_.table + (layout.first[f] + batch_.ids(f)[begin + r]) * layout.stride;
        for (std::size_t l = 0; l < lists_.size(); ++l) {
            lists_[l].values.offsets = batch_.lists(lists_[l].field).offsets + begin;
            for (std::size_t r = 0; r < rows; ++r) weights_[r * layout.fields() + lists_[l].field] = buffer(l);
        }
        rows_ = rows;
    }

    void score(const Share& share, FfmTerms& terms) {
        if (lists_.empty()) return kernels_.score(view(0, rows_), share.begin, share.end, terms);
        for (std::size_t r = 0; r < rows_; ++r) {
            const FfmTile row = view(r, r + 1);
            kernels_.pool(row, r, share.begin, share.end);
            kernels_.score(row, share.begin, share.end, terms);
        }
    }

    void update(const Share& share, const float* gradients, const FfmOptimizers& optimizers) {
        if (lists_.empty()) return kernels_.update(view(0, rows_), share.begin, share.end, gradients, optimizers);
        for (std::size_t r = 0; r < rows_; ++r) {
            const FfmTile row = view(r, r + 1);
            kernels_.pool(row, r, share.begin, share.end);
            kernels_.update_lists(row, r, share.begin, share.end, gradients[r], optimizers);
            kernels_.update(row, share.begin, share.end, gradients, optimizers);
        }
    }

private:
    // All rows use the same buffer of a multi-valued field, one after the other; the last buffer is for partners.
    float* buffer(std::size_t number) { return reinterpret_cast<float*>(buffers_.data() + number * row_bytes()); }
    std::size_t row_bytes() const { return static_cast<std::size_t>(model_.layout->stride) * sizeof(float); }

    FfmTile view(std::size_t begin, std::size_t end) {
        return {*model_.layout, begin, end, weights_.data(), lists_, buffer(lists_.size())};
    }

    const FfmKernels& kernels_;
    const Ffm& model_;
    const Minibatch& batch_;
    std::vector<float*> weights_;
    std::vector<FfmList> lists_;
    AlignedBuffer buffers_;
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
    const Share all{0, model.layout->blocks.size()};
    parallel_ranges(batch.size(), 8 * ffm_tile, threads, [&](std::size_t first, std::size_t end) {
        Tile tile(kernels, model, batch);
        Terms terms;
        for (std::size_t begin = first; begin < end; begin += ffm_tile) {
            const std::size_t rows = std::min(ffm_tile, end - begin);
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

namespace {

constexpr std::size_t features_per_task = 1024;

// Calls body(feature, its field, its row in the table) for features [begin, begin + count).
template <class Body>
void for_features(const Ffm& model, std::int64_t begin, std::size_t count, std::size_t threads, const Body& body) {
    const FfmLayout& layout = *model.layout;
    parallel_ranges(count, features_per_task, threads, [&](std::size_t first, std::size_t last) {
        const std::int64_t from = begin + static_cast<std::int64_t>(first), to = begin + static_cast<std::int64_t>(last);
        auto field = static_cast<std::size_t>(std::ranges::upper_bound(layout.first, from) - layout.first.begin()) - 1;
        for (std::int64_t feature = from; feature < to; ++feature) {
            while (feature - layout.first[field] >= layout.sizes[field]) ++field;
            body(static_cast<std::size_t>(feature - begin), field, model.table + feature * layout.stride);
        }
    });
}

// A row's vector for a field, and the vector's sum of squares.
struct Entry {
    Entry(const FfmLayout& layout, float* row, std::size_t field) {
        const FfmLayout::Group& group = layout.groups[layout.group[field]];
        const std::int64_t within = static_cast<std::int64_t>(field) - group.first;
        vector = row + group.offset + within * layout.dim;
        squares = row + group.offset + std::int64_t{group.count} * layout.dim + within;
    }

    float *vector, *squares;
};

// The index of another field's vector among the n - 1 vectors of a dense array.
std::size_t dense_index(std::size_t own_field, std::size_t other) { return other < own_field ? other : other - 1; }

}  // namespace

void ffm_write(const Ffm& model, std::int64_t begin, std::size_t count, const float* vectors, const float* linear, float squares,
               std::size_t threads) {
    const FfmLayout& layout = *model.layout;
    const std::size_t n = layout.fields(), dim = static_cast<std::size_t>(layout.dim);
    for_features(model, begin, count, threads, [&](std::size_t i, std::size_t own_field, float* row) {
        for (std::size_t field = 0; field < n; ++field) {
            const Entry entry(layout, row, field);
            *entry.squares = squares;
            if (field == own_field) {
                std::fill_n(entry.vector, dim, 0.0f);
                *entry.vector = linear[i];
            } else {
                std::copy_n(vectors + (i * (n - 1) + dense_index(own_field, field)) * dim, dim, entry.vector);
            }
        }
    });
}

void ffm_read(const Ffm& model, std::int64_t begin, std::size_t count, float* vectors, float* linear, std::size_t threads) {
    const FfmLayout& layout = *model.layout;
    const std::size_t n = layout.fields(), dim = static_cast<std::size_t>(layout.dim);
    for_features(model, begin, count, threads, [&](std::size_t i, std::size_t own_field, float* row) {
        for (std::size_t field = 0; field < n; ++field) {
            const Entry entry(layout, row, field);
            if (field == own_field) linear[i] = *entry.vector;
            else std::copy_n(entry.vector, dim, vectors + (i * (n - 1) + dense_index(own_field, field)) * dim);
        }
    });
}

}  // namespace fm2
