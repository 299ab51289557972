// Networks: native code looks embeddings up, and computes the rest if that is a sparse network. Otherwise the caller passes the embeddings
// to another runtime.
#pragma once

#include "fm2/ranker.h"

namespace fm2 {

// Writes the embeddings [rows, stride] of rows that have been checked, and their logits so far: the bias and the linear weights.
void embed(const Kernels& kernels, const NetworkPlan& plan, const Rows& rows, float* out, std::size_t stride, float* logits);

// Writes the logits of rows that have been checked. Throws std::invalid_argument if the network is not sparse.
void score_network(const Kernels& kernels, const NetworkPlan& plan, const Rows& rows, float* logits);

// Ranks candidates by complete rows: only encoding the context and looking its embeddings up is shared.
class NetworkRanker : public Ranker {
public:
    NetworkRanker(std::shared_ptr<const Scorer> scorer, std::vector<std::size_t> context, std::vector<std::size_t> candidate);

    std::size_t width() const override { return plan_.width; }
    bool has_vectors() const override { return false; }
    void score(const Kernels& kernels, const Query& query, const Rows& candidates, float* logits, std::size_t threads) const override;

    // Writes the embeddings [rows, width()] of complete rows of the candidates' fields in a context, and their logits so far.
    void embed(const Kernels& kernels, const Query& query, const Rows& candidates, float* out, float* logits, std::size_t threads) const;

protected:
    Query make_query(const Kernels& kernels, const Rows& context) const override;
    void make_vectors(const Kernels& kernels, const Rows& candidates, float* vectors, std::size_t stride, float* parts) const override;

private:
    // A field of the plan, and its column in the rows of a side.
    struct Part {
        const MatrixField* field;
        std::size_t column;
    };
    std::vector<Part> parts_of(std::span<const std::size_t> side) const;
    void embed_checked(const Kernels& kernels, const Query& query, const Rows& rows, float* out, float* logits) const;

    const NetworkPlan& plan_;
    std::vector<Part> context_parts_, candidate_parts_;
};

}  // namespace fm2
