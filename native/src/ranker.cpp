#include "fm2/ranker.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "fm2/pool.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

// The fields of one side of a quadratic form: where their embeddings stand in a vector, and what they have among themselves.
class Side {
public:
    Side(const PrefixPlan& plan, const std::vector<const PrefixField*>& fields) : plan_(plan), fields_(fields) {
        for (const PrefixField* field : fields_) {
            starts_.push_back(width_);
            width_ += field->dim;
        }
    }

    std::size_t width() const { return width_; }
    std::size_t start(std::size_t place) const { return starts_[place]; }
    const std::vector<const PrefixField*>& fields() const { return fields_; }

    void set_pairs(std::vector<float> panels) {
        panels_ = std::move(panels);
        depths_.assign((width_ + panel_columns - 1) / panel_columns, 0);
        for (std::size_t f = 0; f < fields_.size(); ++f)  // a field meets what stands before it
            for (std::size_t column = starts_[f]; column < starts_[f] + fields_[f]->dim; ++column) depths_[column / panel_columns] = starts_[f];
    }

    // vectors [rows, stride]: embeddings side by side; own: linear weights and the terms of the side's own pairs.
    void gather(const Kernels& kernels, const std::int32_t* ids, std::size_t rows, float* vectors, std::size_t stride, float* own) const {
        std::fill(own, own + rows, 0.0f);
        for (std::size_t f = 0; f < fields_.size(); ++f)
            kernels.scoring.embed(plan_, *fields_[f], ids + f, fields_.size(), rows, vectors + starts_[f], stride, own);
        kernels.quadratic.add_forms(vectors, stride, rows, width_, panels_.data(), depths_.data(), own);
    }

private:
    const PrefixPlan& plan_;
    std::vector<const PrefixField*> fields_;
    std::vector<std::size_t> starts_;
    std::size_t width_ = 0;
    std::vector<float> panels_;
    std::vector<std::size_t> depths_;  // of the panels
};

// What a side's fields have with later ones of the side, as kernels of quadratic forms like it.
std::vector<float> pairs_of(const PrefixPlan& plan, const Side& side) {
    std::vector<float> panels((side.width() + panel_columns - 1) / panel_columns * panel_columns * side.width());
    for (std::size_t q = 0; q < side.fields().size(); ++q)
        for (std::size_t p = 0; p < q; ++p)
            for (std::size_t i = 0; i < side.fields()[p]->dim; ++i)
                for (std::size_t j = 0; j < side.fields()[q]->dim; ++j) {
                    const std::size_t row = side.start(p) + i, column = side.start(q) + j;
                    panels[(column / panel_columns * side.width() + row) * panel_columns + column % panel_columns] =
                        plan.entry(*side.fields()[p], i, *side.fields()[q], j);
                }
    return panels;
}

class PrefixRanker : public Ranker {
public:
    PrefixRanker(std::shared_ptr<const Scorer> scorer, std::vector<std::size_t> context, std::vector<std::size_t> candidate)
        : Ranker(std::move(scorer), std::move(context), std::move(candidate)),
          plan_(std::get<PrefixPlan>(this->scorer().plan())),
          before_(plan_, fields(this->context())),
          after_(plan_, fields(this->candidate())) {
        before_.set_pairs(pairs_of(plan_, before_));
        after_.set_pairs(pairs_of(plan_, after_));
        between_.resize(after_.width() * before_.width());
        for (std::size_t p = 0; p < after_.fields().size(); ++p)
            for (std::size_t q = 0; q < before_.fields().size(); ++q)
                for (std::size_t i = 0; i < after_.fields()[p]->dim; ++i)
                    for (std::size_t j = 0; j < before_.fields()[q]->dim; ++j)
                        between_[(after_.start(p) + i) * before_.width() + before_.start(q) + j] =
                            plan_.entry(*after_.fields()[p], i, *before_.fields()[q], j);
    }

    std::size_t width() const override { return after_.width(); }

protected:
    Query make_query(const Kernels& kernels, const std::int32_t* ids) const override {
        std::vector<float> v(before_.width());
        Query query{0, std::vector<float>(width())};
        before_.gather(kernels, ids, 1, v.data(), v.size(), &query.base);
        query.base += plan_.bias;
        kernels.scoring.dots(between_.data(), v.size(), width(), v.data(), v.size(), query.vector.data());
        return query;
    }

    void make_vectors(const Kernels& kernels, const std::int32_t* ids, std::size_t rows, float* vectors, std::size_t stride,
                      float* own) const override {
        after_.gather(kernels, ids, rows, vectors, stride, own);
    }

private:
    std::vector<const PrefixField*> fields(std::span<const std::size_t> numbers) const {
        std::vector<const PrefixField*> found;
        for (const std::size_t number : numbers) found.push_back(&*std::ranges::find(plan_.fields, number, &PrefixField::field));
        return found;
    }

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

void Ranker::check(std::span<const std::size_t> fields, const std::int32_t* ids, std::size_t rows) const {
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t f = 0; f < fields.size(); ++f) {
            const std::int32_t id = ids[r * fields.size() + f], size = scorer_->sizes()[fields[f]];
            if (id < 0 || id >= size)
                throw std::out_of_range("row " + std::to_string(r) + " has the id " + std::to_string(id) + " in field " +
                                        std::to_string(fields[f]) + ", whose ids go from 0 to " + std::to_string(size - 1));
        }
}

Query Ranker::query(const Kernels& kernels, const std::int32_t* ids) const {
    check(context_, ids, 1);
    return make_query(kernels, ids);
}

void Ranker::describe(const Kernels& kernels, const std::int32_t* ids, std::size_t rows, float* vectors, std::size_t stride, float* own) const {
    check(candidate_, ids, rows);
    make_vectors(kernels, ids, rows, vectors, stride, own);
}

void Ranker::score(const Kernels& kernels, const Query& query, const std::int32_t* ids, std::size_t rows, float* logits,
                   std::size_t threads) const {
    constexpr std::size_t rows_a_task = 128;
    const auto score_some = [&](std::size_t begin) {
        static thread_local std::vector<float> vectors;
        const std::size_t some = std::min(rows_a_task, rows - begin);
        vectors.resize(std::max(vectors.size(), (width() + 1) * rows_a_task));
        describe(kernels, ids + begin * candidate_.size(), some, vectors.data(), width(), logits + begin);
        float* together = vectors.data() + width() * rows_a_task;
        kernels.scoring.dots(vectors.data(), width(), some, query.vector.data(), width(), together);
        for (std::size_t r = 0; r < some; ++r) logits[begin + r] += query.base + together[r];
    };
    if (rows <= rows_a_task) return rows ? score_some(0) : void();
    parallel_for((rows + rows_a_task - 1) / rows_a_task, threads, [&](std::size_t task) { score_some(task * rows_a_task); });
}

}  // namespace fm2
