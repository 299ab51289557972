// Ranks candidates in one context. The logit is the sum of a context part, a candidate part, and the inner product of a query, computed
// once from the context, and the candidate's vector.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fm2/cross.h"
#include "fm2/scorer.h"

namespace fm2 {

// The result of a context: a candidate's logit is base + its own part + <query vector, candidate vector>.
struct Query {
    float base = 0;
    std::vector<float> vector;
    std::vector<std::int32_t> context;  // the ids of the context
};

class Ranker {
public:
    Ranker(std::shared_ptr<const Scorer> scorer, std::vector<std::size_t> context, std::vector<std::size_t> candidate);
    // Makes a ranker from the fields of the context; the candidates have all others. Throws std::invalid_argument if a field is repeated or
    // does not exist, if either side has no field, if the context has a cross with a part of the candidates, or if the model hashes its
    // pairs, which is not an inner product. The memory of the crosses belongs to the scorer's file.
    static std::unique_ptr<Ranker> make(std::shared_ptr<const Scorer> scorer, std::vector<std::size_t> context,
                                        std::span<const Cross> crosses);
    virtual ~Ranker() = default;

    const Scorer& scorer() const { return *scorer_; }
    std::span<const std::size_t> context() const { return context_.fields(); }
    std::span<const std::size_t> candidate() const { return candidate_.fields(); }
    virtual std::size_t width() const = 0;  // of a candidate's vector
    // Whether candidates are compared by an inner product, so that they can be precomputed. Otherwise describe() throws.
    virtual bool has_vectors() const { return true; }

    // Whether a cross of the candidates has a part of the context, so that its feature depends on both.
    bool crosses_sides() const { return !pair_crosses_.empty(); }
    // Returns rows of the candidates' fields with the ids of such crosses in this context; those of the given rows are not read. The ids
    // are written to `completed`, unless there is nothing to do.
    Rows complete(const Query& query, const Rows& candidates, std::vector<std::int32_t>& completed, std::size_t threads) const;

    // Returns the query of one row of the context's fields. All functions throw like Scorer::score.
    Query query(const Kernels& kernels, const Rows& context) const;
    // Writes the catalog rows [rows, stride] of rows of the candidates' fields: the vector, the candidate's own part, and zeros up to
    // padded(width() + 1), which is the smallest stride. Throws std::invalid_argument if a cross depends on the context as well.
    void describe(const Kernels& kernels, const Rows& candidates, float* catalog, std::size_t stride, std::size_t threads) const;
    // Writes the logits of complete rows of the candidates' fields.
    virtual void score(const Kernels& kernels, const Query& query, const Rows& candidates, float* logits, std::size_t threads) const;

protected:
    const RowFormat& candidate_format() const { return candidate_; }
    virtual Query make_query(const Kernels& kernels, const Rows& context) const = 0;
    // Writes the vectors [rows, stride] and the own parts [rows] of candidates.
    virtual void make_vectors(const Kernels& kernels, const Rows& candidates, float* vectors, std::size_t stride, float* parts) const = 0;

private:
    // A cross of the candidates with a part of the context. Its parts are columns of the candidates' rows, or, in `from_context`, of the
    // context's row; its field is a column of the candidates.
    struct PairCross {
        Cross cross;
        std::array<bool, max_parts> from_context{};
    };

    void add_crosses(std::span<const Cross> crosses);

    std::shared_ptr<const Scorer> scorer_;
    RowFormat context_, candidate_;
    std::vector<PairCross> pair_crosses_;
};

struct TopRow {
    float score;
    std::int64_t row;
};

// Returns the k rows with the largest <row, vector>, best first; the earlier of equal rows comes first, and NaN comes last. Rows have
// `width` floats and are `stride` apart. The result does not depend on the number of threads.
std::vector<TopRow> top_rows(const Kernels& kernels, const float* rows, std::size_t stride, std::size_t count, const float* vector,
                             std::size_t width, std::size_t k, std::size_t threads);

// The same for given scores.
std::vector<TopRow> top_scores(const float* scores, std::size_t count, std::size_t k);

}  // namespace fm2
