#include "fm2/ranker.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "fm2/expect.h"
#include "fm2/pool.h"
#include "kernels/kernels.h"
#include "side.h"

namespace fm2 {
namespace {

constexpr std::size_t rows_a_task = 128;
constexpr std::size_t largest_matrix = 1 << 26;  // floats between context and candidates: 256 MB

class PrefixRanker : public Ranker {
public:
    PrefixRanker(std::shared_ptr<const Scorer> scorer, std::vector<std::size_t> context, std::vector<std::size_t> candidate)
        : Ranker(std::move(scorer), std::move(context), std::move(candidate)),
          plan_(std::get<PrefixPlan>(this->scorer().plan())),
          before_(plan_, this->context()),
          after_(plan_, this->candidate()) {
        expect(before_.width() <= largest_matrix / after_.width(), "rank: the dimensions are too many: ", before_.width(), " by ", after_.width());
        between_ = after_.matrix_with(before_);
    }

    std::size_t width() const override { return after_.width(); }

protected:
    Query make_query(const Kernels& kernels, const std::int32_t* ids) const override {
        std::vector<float> v(padded(before_.width()));
        Query query{0, std::vector<float>(width())};
        before_.gather(kernels, ids, 1, v.data(), v.size(), &query.base);
        query.base += plan_.bias;
        kernels.scoring.dots(between_.data(), before_.width(), width(), v.data(), before_.width(), query.vector.data());
        return query;
    }

    void make_vectors(const Kernels& kernels, const std::int32_t* ids, std::size_t rows, float* vectors, std::size_t stride,
                      float* own) const override {
        after_.gather(kernels, ids, rows, vectors, stride, own);
    }

private:
    const PrefixPlan& plan_;
    Side before_, after_;
    std::vector<float> between_;  // [width, width of the context]: S between the two
};

class SquaresRanker : public Ranker {
public:
    SquaresRanker(std::shared_ptr<const Scorer> scorer, std::vector<std::size_t> context, std::vector<std::size_t> candidate)
        : Ranker(std::move(scorer), std::move(context), std::move(candidate)), plan_(std::get<SquaresPlan>(this->scorer().plan())) {}

    std::size_t width() const override { return plan_.rank; }

protected:
    Query make_query(const Kernels& kernels, const std::int32_t* ids) const override {
        Query query{0, std::vector<float>(plan_.rank)};
        sum(kernels, context(), ids, 1, query.vector.data(), plan_.rank, &query.base);
        query.base += plan_.bias;
        for (std::size_t k = 0; k < plan_.rank; ++k) query.vector[k] *= 2 * plan_.signs[k];
        return query;
    }

    void make_vectors(const Kernels& kernels, const std::int32_t* ids, std::size_t rows, float* vectors, std::size_t stride,
                      float* own) const override {
        sum(kernels, candidate(), ids, rows, vectors, stride, own);
    }

private:
    // The sums of the fields' vectors; own: linear weights and the signed squares of the sums.
    void sum(const Kernels& kernels, std::span<const std::size_t> fields, const std::int32_t* ids, std::size_t rows, float* vectors,
             std::size_t stride, float* own) const {
        const auto row_of = [&](std::size_t r, std::size_t f) {
            return plan_.fields[fields[f]].rows + static_cast<std::size_t>(ids[r * fields.size() + f]) * plan_.layout.stride;
        };
        for (std::size_t r = 0; r < rows; ++r) {
            for (std::size_t f = 0; r + 1 < rows && f < fields.size(); ++f) {
                __builtin_prefetch(row_of(r + 1, f));
                __builtin_prefetch(row_of(r + 1, f) + plan_.layout.linear_at);
            }
            float* vector = vectors + r * stride;
            std::fill(vector, vector + plan_.rank, 0.0f);
            own[r] = 0;
            for (std::size_t f = 0; f < fields.size(); ++f) own[r] += kernels.scoring.add(plan_.number, plan_.layout, row_of(r, f), vector);
            for (std::size_t k = 0; k < plan_.rank; ++k) own[r] += plan_.signs[k] * vector[k] * vector[k];
        }
    }

    const SquaresPlan& plan_;
};

class PartnersRanker : public Ranker {
public:
    PartnersRanker(std::shared_ptr<const Scorer> scorer, std::vector<std::size_t> context, std::vector<std::size_t> candidate)
        : Ranker(std::move(scorer), std::move(context), std::move(candidate)), plan_(std::get<PartnersPlan>(this->scorer().plan())) {}

    std::size_t width() const override { return context().size() * candidate().size() * plan_.dim; }

protected:
    Query make_query(const Kernels& kernels, const std::int32_t* ids) const override {
        Query query{0, std::vector<float>(width())};
        std::vector<float> room(context().size() * plan_.layout.second);
        query.base = plan_.bias + gather(kernels, context(), ids, room.data());
        for (std::size_t x = 0; x < context().size(); ++x)
            for (std::size_t a = 0; a < candidate().size(); ++a) copy(room.data(), context(), x, candidate()[a], query.vector.data() + place(a, x));
        return query;
    }

    void make_vectors(const Kernels& kernels, const std::int32_t* ids, std::size_t rows, float* vectors, std::size_t stride,
                      float* own) const override {
        std::vector<float> room(candidate().size() * plan_.layout.second);
        for (std::size_t r = 0; r < rows; ++r) {
            own[r] = gather(kernels, candidate(), ids + r * candidate().size(), room.data());
            for (std::size_t a = 0; a < candidate().size(); ++a)
                for (std::size_t x = 0; x < context().size(); ++x)
                    copy(room.data(), candidate(), a, context()[x], vectors + r * stride + place(a, x));
        }
    }

private:
    std::size_t place(std::size_t a, std::size_t x) const { return (a * context().size() + x) * plan_.dim; }

    // The vector for field `other` of the feature that stands at a place of the side.
    const float* vector(const float* room, std::span<const std::size_t> side, std::size_t at, std::size_t other) const {
        return room + at * plan_.layout.second + (other - (other > side[at])) * plan_.dim;
    }
    void copy(const float* room, std::span<const std::size_t> side, std::size_t at, std::size_t other, float* to) const {
        std::copy_n(vector(room, side, at, other), plan_.dim, to);
    }

    // room [fields, vectors]: those of a side's features; returns their linear weights and the terms of the side's own pairs.
    float gather(const Kernels& kernels, std::span<const std::size_t> side, const std::int32_t* ids, float* room) const {
        float own = 0;
        for (std::size_t f = 0; f < side.size(); ++f) {
            const std::byte* row = plan_.fields[side[f]].rows + static_cast<std::size_t>(ids[f]) * plan_.layout.stride;
            own += kernels.scoring.unpack(plan_.number, plan_.layout, row, 1, room + f * plan_.layout.second);
        }
        for (std::size_t a = 0; a < side.size(); ++a)
            for (std::size_t b = 0; b < a; ++b) {
                float pair;
                kernels.scoring.dots(vector(room, side, a, side[b]), plan_.dim, 1, vector(room, side, b, side[a]), plan_.dim, &pair);
                own += pair;
            }
        return own;
    }

    const PartnersPlan& plan_;
};

}  // namespace

std::unique_ptr<Ranker> Ranker::make(std::shared_ptr<const Scorer> scorer, std::vector<std::size_t> context) {
    std::vector<bool> before(scorer->fields());
    for (const std::size_t field : context) {
        if (field >= scorer->fields() || before[field]) throw std::invalid_argument("rank: a field of the context is there twice, or is none");
        before[field] = true;
    }
    std::vector<std::size_t> candidate;
    for (std::size_t field = 0; field < scorer->fields(); ++field)
        if (!before[field]) candidate.push_back(field);
    if (context.empty() || candidate.empty()) throw std::invalid_argument("rank: the context and the candidates need a field each, at least");
    if (std::holds_alternative<PrefixPlan>(scorer->plan()))
        return std::make_unique<PrefixRanker>(std::move(scorer), std::move(context), std::move(candidate));
    if (std::holds_alternative<PartnersPlan>(scorer->plan()))
        return std::make_unique<PartnersRanker>(std::move(scorer), std::move(context), std::move(candidate));
    if (std::get<SquaresPlan>(scorer->plan()).hash_bits)
        throw std::invalid_argument("rank: poly2's pairs are hashed, so nothing of them can be had beforehand; score whole rows");
    return std::make_unique<SquaresRanker>(std::move(scorer), std::move(context), std::move(candidate));
}

Ranker::Ranker(std::shared_ptr<const Scorer> scorer, std::vector<std::size_t> context, std::vector<std::size_t> candidate)
    : scorer_(std::move(scorer)), context_(std::move(context)), candidate_(std::move(candidate)) {
    for (const std::size_t field : context_) context_sizes_.push_back(scorer_->sizes()[field]);
    for (const std::size_t field : candidate_) candidate_sizes_.push_back(scorer_->sizes()[field]);
}

Query Ranker::query(const Kernels& kernels, const std::int32_t* ids) const {
    check_ids(context_sizes_, context_, ids, 0, 1);
    return make_query(kernels, ids);
}

void Ranker::describe(const Kernels& kernels, const std::int32_t* ids, std::size_t rows, float* described, std::size_t stride,
                      std::size_t threads) const {
    check_ids(candidate_sizes_, candidate_, ids, 0, rows);
    parallel_for((rows + rows_a_task - 1) / rows_a_task, threads, [&](std::size_t task) {
        const std::size_t begin = task * rows_a_task, some = std::min(rows_a_task, rows - begin);
        float own[rows_a_task];
        make_vectors(kernels, ids + begin * candidate_.size(), some, described + begin * stride, stride, own);
        for (std::size_t r = 0; r < some; ++r) {
            float* behind = described + (begin + r) * stride + width();
            std::fill(behind, described + (begin + r) * stride + padded(width() + 1), 0.0f);
            *behind = own[r];
        }
    });
}

void Ranker::score(const Kernels& kernels, const Query& query, const std::int32_t* ids, std::size_t rows, float* logits,
                   std::size_t threads) const {
    check_ids(candidate_sizes_, candidate_, ids, 0, rows);
    const std::size_t stride = padded(width());
    const auto score_some = [&](std::size_t task) {
        static thread_local std::vector<float> vectors;
        const std::size_t begin = task * rows_a_task, some = std::min(rows_a_task, rows - begin);
        vectors.resize(std::max(vectors.size(), (stride + 1) * rows_a_task));
        make_vectors(kernels, ids + begin * candidate_.size(), some, vectors.data(), stride, logits + begin);
        float* together = vectors.data() + stride * rows_a_task;
        kernels.scoring.dots(vectors.data(), stride, some, query.vector.data(), width(), together);
        for (std::size_t r = 0; r < some; ++r) logits[begin + r] += query.base + together[r];
    };
    if (rows <= rows_a_task) return rows ? score_some(0) : void();
    parallel_for((rows + rows_a_task - 1) / rows_a_task, threads, score_some);
}

}  // namespace fm2
