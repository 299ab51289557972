// Ranking candidates in one context. A model's logit falls into what the context has alone, what a candidate has alone, and what they have
// together: an inner product of a query, made once from the context, and the candidate's vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fm2/scorer.h"

namespace fm2 {

// What a context comes to: a candidate's logit is base + own + <query, vector>.
struct Query {
    float base;
    std::vector<float> vector;
};

class Ranker {
public:
    // The fields of the context; all others are the candidates'. Throws std::invalid_argument where one is there twice or not at all,
    // where one of the sides has none, or where the model's pairs are hashed, which no inner product gives.
    static std::unique_ptr<Ranker> make(std::shared_ptr<const Scorer> scorer, std::vector<std::size_t> context);
    virtual ~Ranker() = default;

    const Scorer& scorer() const { return *scorer_; }
    std::span<const std::size_t> context() const { return context_; }
    std::span<const std::size_t> candidate() const { return candidate_; }
    virtual std::size_t width() const = 0;  // of a candidate's vector

    // From ids [context fields]. Throws std::out_of_range where an id is not in its field; so do the others.
    Query query(const Kernels& kernels, const std::int32_t* ids) const;
    // From ids [rows, candidate fields]: rows of a catalog [rows, stride], vectors with what each has alone behind them. The stride is
    // padded(width() + 1) at least, and all of it up to there is written.
    void describe(const Kernels& kernels, const std::int32_t* ids, std::size_t rows, float* described, std::size_t stride, std::size_t threads) const;
    // logits [rows] of candidates.
    void score(const Kernels& kernels, const Query& query, const std::int32_t* ids, std::size_t rows, float* logits, std::size_t threads) const;

protected:
    Ranker(std::shared_ptr<const Scorer> scorer, std::vector<std::size_t> context, std::vector<std::size_t> candidate);

    virtual Query make_query(const Kernels& kernels, const std::int32_t* ids) const = 0;
    virtual void make_vectors(const Kernels& kernels, const std::int32_t* ids, std::size_t rows, float* vectors, std::size_t stride,
                              float* own) const = 0;

private:
    std::shared_ptr<const Scorer> scorer_;
    std::vector<std::size_t> context_, candidate_;
    std::vector<std::int32_t> context_sizes_, candidate_sizes_;
};

}  // namespace fm2
