#include "fm2/network.h"

#include <algorithm>

#include "aligned_buffer.h"
#include "fm2/expect.h"
#include "fm2/pool.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

constexpr std::size_t rows_per_task = SparseNetwork::block_rows;

// Writes the embeddings of one field, whose ids are in this column, and adds its linear weights.
void embed_field(const Kernels& kernels, const NetworkPlan& plan, const MatrixField& field, std::size_t column, const Rows& rows,
                 float* out, std::size_t stride, float* linear) {
    kernels.scoring.embed(plan.dtype, field, rows.lists.empty() ? Lists{} : rows.lists[column], rows.ids + column, rows.fields, rows.count,
                          out + field.offset, stride, linear);
}

float* scratch(std::size_t floats) {
    static thread_local AlignedBuffer buffer;
    buffer.reserve(floats * sizeof(float));
    return reinterpret_cast<float*>(buffer.data());
}

const SparseNetwork& sparse_part(const NetworkPlan& plan) {
    expect(plan.sparse.has_value(), "the dense layers of this network are an ONNX graph, which needs ONNX Runtime");
    return *plan.sparse;
}

}  // namespace

void embed(const Kernels& kernels, const NetworkPlan& plan, const Rows& rows, float* out, std::size_t stride, float* logits) {
    std::fill_n(logits, rows.count, plan.bias);
    for (const MatrixField& field : plan.fields) embed_field(kernels, plan, field, field.field, rows, out, stride, logits);
}

void score_network(const Kernels& kernels, const NetworkPlan& plan, const Rows& rows, float* logits) {
    const SparseNetwork& sparse = sparse_part(plan);
    for (std::size_t begin = 0; begin < rows.count; begin += rows_per_task) {
        const Rows block = rows_between(rows, begin, std::min(rows.count, begin + rows_per_task));
        float* embeddings = scratch(rows_per_task * plan.width);
        embed(kernels, plan, block, embeddings, plan.width, logits + begin);
        sparse.add(kernels, embeddings, block.count, plan.width, logits + begin);
    }
}

NetworkRanker::NetworkRanker(std::shared_ptr<const Scorer> scorer, std::vector<std::size_t> context, std::vector<std::size_t> candidate)
    : Ranker(std::move(scorer), std::move(context), std::move(candidate)),
      plan_(std::get<NetworkPlan>(this->scorer().plan())),
      context_parts_(parts_of(this->context())),
      candidate_parts_(parts_of(this->candidate())) {}

std::vector<NetworkRanker::Part> NetworkRanker::parts_of(std::span<const std::size_t> side) const {
    std::vector<Part> parts;
    for (const MatrixField& field : plan_.fields) {
        const auto found = std::ranges::find(side, field.field);
        if (found != side.end()) parts.push_back({&field, static_cast<std::size_t>(found - side.begin())});
    }
    return parts;
}

Query NetworkRanker::make_query(const Kernels& kernels, const Rows& row) const {
    Query query{plan_.bias, std::vector<float>(plan_.width), {}};
    for (const auto [field, column] : context_parts_)
        embed_field(kernels, plan_, *field, column, row, query.vector.data(), plan_.width, &query.base);
    return query;
}

void NetworkRanker::make_vectors(const Kernels& kernels, const Rows& rows, float* vectors, std::size_t stride, float* parts) const {
    std::fill_n(parts, rows.count, 0.0f);
    for (const auto [field, column] : candidate_parts_) embed_field(kernels, plan_, *field, column, rows, vectors, stride, parts);
}

void NetworkRanker::embed_checked(const Kernels& kernels, const Query& query, const Rows& rows, float* out, float* logits) const {
    for (std::size_t r = 0; r < rows.count; ++r) std::ranges::copy(query.vector, out + r * plan_.width);
    make_vectors(kernels, rows, out, plan_.width, logits);
    for (std::size_t r = 0; r < rows.count; ++r) logits[r] += query.base;
}

void NetworkRanker::embed(const Kernels& kernels, const Query& query, const Rows& candidates, float* out, float* logits,
                          std::size_t threads) const {
    candidate_format().check_columns(candidates);
    parallel_ranges(candidates.count, rows_per_task, threads, [&](std::size_t begin, std::size_t end) {
        embed_checked(kernels, query, candidate_format().checked_copy(candidates, begin, end), out + begin * plan_.width, logits + begin);
    });
}

void NetworkRanker::score(const Kernels& kernels, const Query& query, const Rows& candidates, float* logits, std::size_t threads) const {
    const SparseNetwork& sparse = sparse_part(plan_);
    candidate_format().check_columns(candidates);
    parallel_ranges(candidates.count, rows_per_task, threads, [&](std::size_t begin, std::size_t end) {
        float* embeddings = scratch(rows_per_task * plan_.width);
        embed_checked(kernels, query, candidate_format().checked_copy(candidates, begin, end), embeddings, logits + begin);
        sparse.add(kernels, embeddings, end - begin, plan_.width, logits + begin);
    });
}

}  // namespace fm2
