#include "fm2/poly2.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "fm2/expect.h"
#include "fm2/pool.h"
#include "fm2/training.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

// The number of each field's first feature.
std::vector<std::uint64_t> first_features(const Minibatch& batch) {
    std::vector<std::uint64_t> first(batch.fields());
    for (std::size_t f = 1; f < batch.fields(); ++f) first[f] = first[f - 1] + static_cast<std::uint64_t>(batch.sizes()[f - 1]);
    return first;
}

// Where the values and the pairs of rows [first, last) of a batch begin, if it has multi-valued fields.
struct RowBegins {
    RowBegins(const Poly2& model, const Minibatch& batch, std::size_t first, std::size_t last) : values{0}, pairs{0} {
        if (!batch.has_lists()) return;
        std::vector<const std::int32_t*> lists;
        for (std::size_t f = 0; f < batch.fields(); ++f)
            if (batch.is_list(f)) lists.push_back(batch.lists(f).offsets);
        values.reserve(last - first + 1);
        pairs.reserve(last - first + 1);
        for (std::size_t r = first; r < last; ++r) {
            std::size_t total = batch.fields() - lists.size(), within = total;  // the values, and the sum of their squares by field
            for (const std::int32_t* offsets : lists) {
                const auto count = static_cast<std::size_t>(offsets[r + 1] - offsets[r]);
                total += count;
                within += count * count;
            }
            const std::size_t row_pairs = model.hash_bits ? (total * total - within) / 2 : 0;
            expect(row_pairs <= Poly2::max_pairs, "poly2: row ", r, " of the batch has ", row_pairs, " pairs of values; the limit is ",
                   Poly2::max_pairs, ", and max_values in the schema limits the values of a field");
            values.push_back(values.back() + total);
            pairs.push_back(pairs.back() + row_pairs);
        }
    }

    // The largest number of values or pairs in so many consecutive rows.
    static std::size_t largest(const std::vector<std::size_t>& begins, std::size_t rows) {
        std::size_t result = 0;
        for (std::size_t r = 0; r + 1 < begins.size(); r += rows)
            result = std::max(result, begins[std::min(r + rows, begins.size() - 1)] - begins[r]);
        return result;
    }

    std::vector<std::size_t> values, pairs;
};

// A few of the rows [first, last) of a batch, and a buffer for the buckets of their pairs.
class Tile {
public:
    Tile(const Poly2& model, const Minibatch& batch, std::size_t first, std::size_t last)
        : model_(model),
          batch_(batch),
          first_(first),
          pairs_(model.hash_bits ? batch.fields() * (batch.fields() - 1) / 2 : 0),
          begins_(model, batch, first, last),
          first_feature_(first_features(batch)),
          starts_((batch.has_lists() ? poly2_tile(model) : 1) * (batch.fields() + 1)),
          features_(batch.has_lists() ? RowBegins::largest(begins_.values, poly2_tile(model)) : poly2_tile(model) * batch.fields()),
          keys_(model.hash_bits ? features_.size() : 0),
          weights_(batch.has_lists() ? features_.size() : 0),
          buckets_(batch.has_lists() ? RowBegins::largest(begins_.pairs, poly2_tile(model)) : poly2_tile(model) * pairs_),
          products_(batch.has_lists() ? buckets_.size() : 0) {
        if (!batch.has_lists()) std::iota(starts_.begin(), starts_.end(), 0);
    }

    // Loads rows [from, to) of the tile; the first row of the tile is row `begin` of the batch.
    void load(std::size_t begin, std::size_t from, std::size_t to) {
        if (batch_.has_lists()) return load_lists(begin, from, to);
        const std::size_t n = batch_.fields();
        for (std::size_t f = 0; f < n; ++f) {
            const std::uint64_t feature = first_feature_[f];
            const std::int32_t* ids = batch_.ids(f) + begin;
            for (std::size_t r = from; r < to; ++r) {
                features_[r * n + f] = feature + static_cast<std::uint64_t>(ids[r]);
                if (!keys_.empty()) keys_[r * n + f] = poly2_key(f, ids[r]);
            }
        }
    }

    Poly2Tile view(std::size_t begin, std::size_t rows) {
        const std::size_t row = batch_.has_lists() ? begin - first_ : 0;
        return {.model = model_,
                .fields = batch_.fields(),
                .rows = rows,
                .pairs = pairs_,
                .first_value = begins_.values.data() + row,
                .first_pair = begins_.pairs.data() + row,
                .starts = starts_.data(),
                .features = features_.data(),
                .keys = keys_.data(),
                .weights = batch_.has_lists() ? weights_.data() : nullptr,
                .buckets = buckets_.data(),
                .products = products_.data()};
    }

    // The largest number of pairs in a row.
    std::size_t pairs() const { return batch_.has_lists() ? RowBegins::largest(begins_.pairs, 1) : pairs_; }

private:
    void load_lists(std::size_t begin, std::size_t from, std::size_t to) {
        const std::size_t n = batch_.fields();
        const std::size_t* first_value = begins_.values.data() + (begin - first_);
        for (std::size_t r = from; r < to; ++r) {
            const std::size_t row = first_value[r] - first_value[0];
            std::uint32_t* starts = starts_.data() + r * (n + 1);
            starts[0] = 0;
            for (std::size_t f = 0; f < n; ++f) starts[f + 1] = starts[f] + load_field(row + starts[f], begin + r, f);
        }
    }

    // Loads a field's values in a row of the batch, and returns how many there are.
    std::uint32_t load_field(std::size_t at, std::size_t row, std::size_t field) {
        if (!batch_.is_list(field)) {
            set_value(at, field, batch_.ids(field)[row]);
            weights_[at] = 1;
            return 1;
        }
        const BatchLists lists = batch_.lists(field);
        for (std::int32_t v = lists.offsets[row]; v < lists.offsets[row + 1]; ++v, ++at) {
            set_value(at, field, lists.ids[v]);
            weights_[at] = lists.weights[v];
        }
        return static_cast<std::uint32_t>(lists.offsets[row + 1] - lists.offsets[row]);
    }

    void set_value(std::size_t at, std::size_t field, std::int32_t id) {
        features_[at] = first_feature_[field] + static_cast<std::uint64_t>(id);
        if (model_.hash_bits) keys_[at] = poly2_key(field, id);
    }

    const Poly2& model_;
    const Minibatch& batch_;
    std::size_t first_, pairs_;
    RowBegins begins_;
    std::vector<std::uint64_t> first_feature_;
    std::vector<std::uint32_t> starts_;
    std::vector<std::uint64_t> features_, keys_;
    std::vector<float> weights_;
    std::vector<std::uint32_t> buckets_;
    std::vector<float> products_;
};

// One thread's buffers for the pairs that it updates.
struct Scratch {
    Scratch(std::size_t pairs, bool weighted) : buckets(2 * (pairs + 1)), products(weighted ? buckets.size() : 0) {}

    std::vector<std::uint32_t> buckets;
    std::vector<float> products;
};

// poly2_score without pairs, for batches with multi-valued fields.
void linear_score(const Kernels& kernels, const Poly2& model, const Minibatch& batch, float* logits, std::size_t threads) {
    const std::vector<std::uint64_t> first = first_features(batch);
    parallel_ranges(batch.size(), 8 * max_poly2_tile, threads, [&](std::size_t from, std::size_t to) {
        float sums[max_poly2_tile];
        for (std::size_t begin = from; begin < to; begin += max_poly2_tile) {
            const LinearTile tile{model, batch, first.data(), begin, std::min(max_poly2_tile, to - begin)};
            std::fill(logits + begin, logits + begin + tile.rows, model.bias[0]);
            for (std::size_t group = 0; group < tile.groups(); ++group) {
                kernels.poly2.sum_group(tile, group, sums);
                for (std::size_t r = 0; r < tile.rows; ++r) logits[begin + r] += sums[r];
            }
        }
    });
}

// poly2_step without pairs. Every thread sums the weights of its groups of fields, computes the gradients of all rows, and updates its
// groups. Consecutive tiles use different sums, so threads wait for each other only once per tile.
double linear_step(const Kernels& kernels, const Poly2& model, const Minibatch& batch, const float* labels, const float* weights,
                   const Optimizer& optimizer, std::size_t threads) {
    const std::vector<std::uint64_t> first = first_features(batch);
    const std::size_t tile_rows = max_poly2_tile, groups = LinearTile{model, batch, first.data(), 0, 0}.groups();
    std::vector<float> sums(2 * (groups + 1) * tile_rows), ones(tile_rows, 1.0f);
    double loss = 0;
    threads = batch.size() <= 2 * tile_rows ? 1 : std::min(threads ? threads : default_threads(), groups);
    parallel_team(threads, [&](const Member& member) {
        const Poly2Part part{member.number, member.of, 0, nullptr, nullptr};
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
    if (!model.hash_bits && batch.has_lists()) return linear_score(kernels, model, batch, logits, threads);
    const std::size_t tile_rows = poly2_tile(model);
    parallel_ranges(batch.size(), 8 * tile_rows, threads, [&](std::size_t first, std::size_t end) {
        Tile tile(model, batch, first, end);
        for (std::size_t begin = first; begin < end; begin += tile_rows) {
            const std::size_t rows = std::min(tile_rows, end - begin);
            tile.load(begin, 0, rows);
            kernels.poly2.score(tile.view(begin, rows), 0, rows, logits + begin);
        }
    });
}

double poly2_step(const Kernels& kernels, const Poly2& model, const Minibatch& batch, const float* labels, const float* weights,
                  const Poly2Optimizers& optimizers, std::size_t threads) {
    if (!model.hash_bits) return linear_step(kernels, model, batch, labels, weights, optimizers.linear, threads);
    const std::size_t tile_rows = poly2_tile(model);
    threads = batch.size() <= 2 * tile_rows ? 1 : std::min(threads ? threads : default_threads(), tile_rows);
    Tile tile(model, batch, 0, batch.size());
    const std::size_t pairs = tile.pairs();
    std::vector<Scratch> scratch(threads, Scratch(pairs, batch.has_lists()));
    float logits[max_poly2_tile], losses[max_poly2_tile], gradients[max_poly2_tile], ones[max_poly2_tile];
    std::fill(std::begin(ones), std::end(ones), 1.0f);
    double loss = 0;
    parallel_team(threads, [&](const Member& member) {
        Scratch& own = scratch[member.number];
        const Poly2Part part{member.number, member.of, pairs, own.buckets.data(), own.products.data()};
        for (std::size_t begin = 0; begin < batch.size(); begin += tile_rows) {
            const std::size_t rows = std::min(tile_rows, batch.size() - begin);
            const std::size_t from = rows * part.number / part.of, to = rows * (part.number + 1) / part.of;
            tile.load(begin, from, to);
            kernels.poly2.score(tile.view(begin, rows), from, to, logits);
            const float* tile_weights = weights ? weights + begin : ones;
            kernels.logistic(logits + from, labels + begin + from, tile_weights + from, to - from, losses + from, gradients + from);
            member.barrier.wait();
            if (member.number == 0) loss = std::accumulate(losses, losses + rows, loss);
            kernels.poly2.update(tile.view(begin, rows), part, gradients, optimizers);
            member.barrier.wait();
        }
    });
    return mean_loss(loss, weights, batch.size());
}

}  // namespace fm2
