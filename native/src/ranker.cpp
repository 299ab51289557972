#include "fm2/ranker.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "fm2/expect.h"
#include "fm2/network.h"
#include "fm2/pool.h"
#include "kernels/kernels.h"
#include "side.h"

namespace fm2 {
namespace {

constexpr std::size_t rows_per_task = 128;
constexpr std::size_t max_matrix_floats = 1 << 26;  // between context and candidates: 256 MB

class MatrixRanker : public Ranker {
public:
    MatrixRanker(std::shared_ptr<const Scorer> scorer, std::vector<std::size_t> context, std::vector<std::size_t> candidate)
        : Ranker(std::move(scorer), std::move(context), std::move(candidate)) {
        expect(context_side_.width() <= max_matrix_floats / candidate_side_.width(),
               "the matrix between context and candidates is too large: ", context_side_.width(), " by ", candidate_side_.width());
        matrix_ = candidate_side_.matrix_with(context_side_);
    }

    std::size_t width() const override { return candidate_side_.width(); }

protected:
    Query make_query(const Kernels& kernels, const Rows& row) const override {
        std::vector<float> v(padded(context_side_.width()));
        Query query{0, std::vector<float>(width()), {}};
        context_side_.gather(kernels, row, v.data(), v.size(), &query.base);
        query.base += plan_.bias;
        kernels.scoring.inner_products(matrix_.data(), context_side_.width(), width(), v.data(), context_side_.width(),
                                       query.vector.data());
        return query;
    }

    void make_vectors(const Kernels& kernels, const Rows& rows, float* vectors, std::size_t stride, float* parts) const override {
        candidate_side_.gather(kernels, rows, vectors, stride, parts);
    }

private:
    const MatrixPlan& plan_ = std::get<MatrixPlan>(scorer().plan());
    Side context_side_{plan_, context(), scorer().lists()}, candidate_side_{plan_, candidate(), scorer().lists()};
    std::vector<float> matrix_;  // S between the sides: [candidate width, context width]
};

class SumsRanker : public Ranker {
public:
    using Ranker::Ranker;

    std::size_t width() const override { return plan_.rank; }

protected:
    Query make_query(const Kernels& kernels, const Rows& row) const override {
        Query query{0, std::vector<float>(plan_.rank), {}};
        sum(kernels, context(), row, query.vector.data(), plan_.rank, &query.base);
        query.base += plan_.bias;
        for (std::size_t k = 0; k < plan_.rank; ++k) query.vector[k] *= 2 * plan_.signs[k];
        return query;
    }

    void make_vectors(const Kernels& kernels, const Rows& rows, float* vectors, std::size_t stride, float* parts) const override {
        sum(kernels, candidate(), rows, vectors, stride, parts);
    }

private:
    const std::byte* row_of(std::size_t field, std::int32_t id) const {
        return plan_.fields[field].rows + static_cast<std::size_t>(id) * plan_.layout.stride;
    }

    // Writes the sums of the fields' vectors, and parts [rows]: linear weights plus the signed squares of the sums.
    void sum(const Kernels& kernels, std::span<const std::size_t> fields, const Rows& rows, float* vectors, std::size_t stride,
             float* parts) const {
        std::vector<float> own(rows.lists.empty() ? 0 : plan_.rank);
        for (std::size_t r = 0; r < rows.count; ++r) {
            for (std::size_t f = 0; r + 1 < rows.count && f < fields.size(); ++f) {
                if (rows.is_list(f)) continue;
                const std::byte* next = row_of(fields[f], rows.row(r + 1)[f]);
                __builtin_prefetch(next);
                __builtin_prefetch(next + plan_.layout.linear_at);
            }
            float* vector = vectors + r * stride;
            std::fill(vector, vector + plan_.rank, 0.0f);
            parts[r] = 0;
            for (std::size_t f = 0; f < fields.size(); ++f)
                parts[r] += rows.is_list(f)
                                ? add_list(kernels, fields[f], rows.lists[f][rows.row(r)[f]], own, vector)
                                : kernels.scoring.accumulate(plan_.dtype, plan_.layout, row_of(fields[f], rows.row(r)[f]), 0, 1, vector);
            for (std::size_t k = 0; k < plan_.rank; ++k) parts[r] += plan_.signs[k] * vector[k] * vector[k];
        }
    }

    // Adds the weighted sum of a list to a vector; returns the linear weights minus the signed squares of that sum.
    float add_list(const Kernels& kernels, std::size_t field, const List& list, std::span<float> own, float* vector) const {
        float total = 0;
        std::ranges::fill(own, 0.0f);
        for (std::size_t i = 0; i < list.size; ++i)
            total += kernels.scoring.accumulate(plan_.dtype, plan_.layout, row_of(field, list.ids[i]), 0, list.weight(i), own.data());
        for (std::size_t k = 0; k < plan_.rank; ++k) {
            vector[k] += own[k];
            total -= plan_.signs[k] * own[k] * own[k];
        }
        return total;
    }

    const SumsPlan& plan_ = std::get<SumsPlan>(scorer().plan());
};

class FieldAwareRanker : public Ranker {
public:
    using Ranker::Ranker;

    std::size_t width() const override { return context().size() * candidate().size() * plan_.dim; }

protected:
    Query make_query(const Kernels& kernels, const Rows& row) const override {
        Query query{0, std::vector<float>(width()), {}};
        std::vector<float> gathered(context().size() * plan_.layout.second);
        query.base = plan_.bias + gather(kernels, context(), row, 0, gathered.data());
        for (std::size_t x = 0; x < context().size(); ++x)
            for (std::size_t a = 0; a < candidate().size(); ++a)
                std::copy_n(vector(gathered.data(), context(), x, candidate()[a]), plan_.dim, query.vector.data() + offset(a, x));
        return query;
    }

    void make_vectors(const Kernels& kernels, const Rows& rows, float* vectors, std::size_t stride, float* parts) const override {
        std::vector<float> gathered(candidate().size() * plan_.layout.second);
        for (std::size_t r = 0; r < rows.count; ++r) {
            parts[r] = gather(kernels, candidate(), rows, r, gathered.data());
            for (std::size_t a = 0; a < candidate().size(); ++a)
                for (std::size_t x = 0; x < context().size(); ++x)
                    std::copy_n(vector(gathered.data(), candidate(), a, context()[x]), plan_.dim, vectors + r * stride + offset(a, x));
        }
    }

private:
    // Returns where a candidate's vector has the numbers of the pair of its field `a` and the context's field `x`.
    std::size_t offset(std::size_t a, std::size_t x) const { return (a * context().size() + x) * plan_.dim; }

    // Returns the vector that the side's feature at `index` has for the field `other`.
    const float* vector(const float* gathered, std::span<const std::size_t> side, std::size_t index, std::size_t other) const {
        return gathered + index * plan_.layout.second + (other - (other > side[index])) * plan_.dim;
    }

    // Writes all vectors of a row's features to gathered [fields, vectors]; returns their linear weights plus the pair terms within the
    // side.
    float gather(const Kernels& kernels, std::span<const std::size_t> side, const Rows& rows, std::size_t row, float* gathered) const {
        float total = 0;
        for (std::size_t f = 0; f < side.size(); ++f) {
            const FeatureTable& table = plan_.fields[side[f]];
            const auto features = [&](std::int32_t id) { return table.rows + static_cast<std::size_t>(id) * plan_.layout.stride; };
            float* out = gathered + f * plan_.layout.second;
            const std::int32_t id = rows.row(row)[f];
            if (!rows.is_list(f)) {
                total += kernels.scoring.unpack(plan_.dtype, plan_.layout, features(id), 1, out);
                continue;
            }
            std::fill_n(out, plan_.layout.second, 0.0f);
            const List list = rows.lists[f][id];
            for (std::size_t i = 0; i < list.size; ++i)
                total += kernels.scoring.accumulate(plan_.dtype, plan_.layout, features(list.ids[i]), 1, list.weight(i), out);
        }
        for (std::size_t a = 0; a < side.size(); ++a)
            for (std::size_t b = 0; b < a; ++b) {
                float pair;
                kernels.scoring.inner_products(vector(gathered, side, a, side[b]), plan_.dim, 1, vector(gathered, side, b, side[a]),
                                               plan_.dim, &pair);
                total += pair;
            }
        return total;
    }

    const FieldAwarePlan& plan_ = std::get<FieldAwarePlan>(scorer().plan());
};

std::unique_ptr<Ranker> make_ranker(std::shared_ptr<const Scorer> scorer, std::vector<std::size_t> context) {
    std::vector<bool> in_context(scorer->fields());
    for (const std::size_t field : context) {
        expect(field < scorer->fields(), "unknown context field ", field, "; the model has ", scorer->fields(), " fields");
        expect(!in_context[field], "context field ", field, " is repeated");
        in_context[field] = true;
    }
    std::vector<std::size_t> candidate;
    for (std::size_t field = 0; field < scorer->fields(); ++field)
        if (!in_context[field]) candidate.push_back(field);
    expect(!context.empty() && !candidate.empty(), "the context and the candidates need at least one field each");
    if (std::holds_alternative<MatrixPlan>(scorer->plan()))
        return std::make_unique<MatrixRanker>(std::move(scorer), std::move(context), std::move(candidate));
    if (std::holds_alternative<FieldAwarePlan>(scorer->plan()))
        return std::make_unique<FieldAwareRanker>(std::move(scorer), std::move(context), std::move(candidate));
    if (std::holds_alternative<NetworkPlan>(scorer->plan()))
        return std::make_unique<NetworkRanker>(std::move(scorer), std::move(context), std::move(candidate));
    expect(!std::get<SumsPlan>(scorer->plan()).hash_bits,
           "poly2 hashes its pairs, so candidates cannot be precomputed; score complete rows instead");
    return std::make_unique<SumsRanker>(std::move(scorer), std::move(context), std::move(candidate));
}

}  // namespace

std::unique_ptr<Ranker> Ranker::make(std::shared_ptr<const Scorer> scorer, std::vector<std::size_t> context,
                                     std::span<const Cross> crosses) {
    std::unique_ptr<Ranker> ranker = make_ranker(std::move(scorer), std::move(context));
    ranker->add_crosses(crosses);
    return ranker;
}

void Ranker::add_crosses(std::span<const Cross> crosses) {
    const auto column_in = [](std::span<const std::size_t> fields, std::size_t field) {
        return static_cast<std::size_t>(std::ranges::find(fields, field) - fields.begin());
    };
    for (const Cross& cross : crosses) {
        PairCross pair{cross};
        for (std::size_t i = 0; i < cross.part_count; ++i) {
            const std::size_t in_context = column_in(context(), cross.parts[i]);
            pair.from_context[i] = in_context < context().size();
            pair.cross.parts[i] = pair.from_context[i] ? in_context : column_in(candidate(), cross.parts[i]);
        }
        const auto end = pair.from_context.begin() + static_cast<std::ptrdiff_t>(cross.part_count);
        pair.cross.field = column_in(candidate(), cross.field);
        if (pair.cross.field == candidate().size()) {
            expect(std::find(pair.from_context.begin(), end, false) == end, "field ", cross.field,
                   " is a cross with a field of the candidates, so it cannot belong to the context");
        } else if (std::find(pair.from_context.begin(), end, true) != end) {
            pair_crosses_.push_back(pair);
        }
    }
}

Rows Ranker::complete(const Query& query, const Rows& candidates, std::vector<std::int32_t>& completed, std::size_t threads) const {
    if (pair_crosses_.empty()) return candidates;
    completed.assign(candidates.ids, candidates.ids + candidates.count * candidates.fields);
    parallel_ranges(candidates.count, rows_per_task, threads, [&](std::size_t begin, std::size_t end) {
        for (const auto& [cross, from_context] : pair_crosses_)
            for (std::size_t r = begin; r < end; ++r) {
                std::int32_t* row = completed.data() + r * candidates.fields;
                Combination ids{};
                for (std::size_t i = 0; i < cross.part_count; ++i)
                    ids[i] = from_context[i] ? query.context[cross.parts[i]] : row[cross.parts[i]];
                row[cross.field] = cross.find(ids);
            }
    });
    return {completed.data(), candidates.count, candidates.fields, candidates.lists};
}

Ranker::Ranker(std::shared_ptr<const Scorer> scorer, std::vector<std::size_t> context, std::vector<std::size_t> candidate)
    : scorer_(std::move(scorer)),
      context_(std::move(context), scorer_->sizes(), scorer_->lists()),
      candidate_(std::move(candidate), scorer_->sizes(), scorer_->lists()) {}

Query Ranker::query(const Kernels& kernels, const Rows& context) const {
    context_.check_columns(context);
    const Rows row = context_.checked_copy(context, 0, 1);
    Query query = make_query(kernels, row);
    query.context.assign(row.ids, row.ids + row.fields);
    return query;
}

void Ranker::describe(const Kernels& kernels, const Rows& candidates, float* catalog, std::size_t stride, std::size_t threads) const {
    expect(has_vectors(), "a network does not compare candidates by an inner product, so they cannot be precomputed");
    expect(!crosses_sides(), "a cross combines fields of the context and the candidates, so candidates cannot be precomputed");
    candidate_.check_columns(candidates);
    parallel_ranges(candidates.count, rows_per_task, threads, [&](std::size_t begin, std::size_t end) {
        float parts[rows_per_task];
        make_vectors(kernels, candidate_.checked_copy(candidates, begin, end), catalog + begin * stride, stride, parts);
        for (std::size_t r = begin; r < end; ++r) {
            float* row = catalog + r * stride;
            row[width()] = parts[r - begin];
            std::fill(row + width() + 1, row + padded(width() + 1), 0.0f);
        }
    });
}

void Ranker::score(const Kernels& kernels, const Query& query, const Rows& candidates, float* logits, std::size_t threads) const {
    candidate_.check_columns(candidates);
    const std::size_t stride = padded(width());
    parallel_ranges(candidates.count, rows_per_task, threads, [&](std::size_t begin, std::size_t end) {
        static thread_local std::vector<float> vectors;
        const std::size_t count = end - begin;
        vectors.resize(std::max(vectors.size(), (stride + 1) * rows_per_task));
        make_vectors(kernels, candidate_.checked_copy(candidates, begin, end), vectors.data(), stride, logits + begin);
        float* products = vectors.data() + stride * rows_per_task;
        kernels.scoring.inner_products(vectors.data(), stride, count, query.vector.data(), width(), products);
        for (std::size_t r = 0; r < count; ++r) logits[begin + r] += query.base + products[r];
    });
}

}  // namespace fm2
