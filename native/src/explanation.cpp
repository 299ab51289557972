#include "fm2/scorer.h"

#include <algorithm>

#include "fm2/expect.h"
#include "fm2/poly2.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

constexpr std::size_t max_fields = 4096;  // whose pairs take 128 MB

// Adds a term to the pair of two fields, in either order.
void add_pair(Explanation& explanation, std::size_t a, std::size_t b, double term) {
    explanation.pairs[std::min(a, b) * explanation.fields.size() + std::max(a, b)] += term;
}

// Returns M[p]ᵀ v of a field, [offset]: the cached product, with its rounding error, or the product computed from the matrix.
std::vector<double> product_of(const Kernels& kernels, const MatrixPlan& plan, const MatrixField& field, std::size_t id, const float* v) {
    std::vector<double> product(field.offset);
    if (id < field.cached) {
        std::vector<float> cached(field.cached_layout.first);
        kernels.scoring.unpack(plan.dtype, field.cached_layout, field.cached_rows + id * field.cached_layout.stride, 0, cached.data());
        const float* next = cached.data();
        for (const auto [begin, length] : plan.ranges_of(field))
            for (std::size_t k = begin; k < begin + length; ++k, ++next)
                if (k < field.offset) product[k] = *next;  // the remainder is padding
        return product;
    }
    for (const MatrixField& earlier : plan.fields) {
        if (earlier.offset >= field.offset) break;
        for (std::size_t j = 0; j < earlier.dim; ++j)
            for (std::size_t i = 0; i < field.dim; ++i)
                product[earlier.offset + j] += double{plan.entry(field, i, earlier, j)} * v[field.offset + i];
    }
    return product;
}

void explain(const Kernels& kernels, const MatrixPlan& plan, const std::int32_t* ids, Explanation& out) {
    std::vector<float> v(plan.width);
    for (const MatrixField& later : plan.fields) {
        const auto id = static_cast<std::size_t>(ids[later.field]);
        const bool cached = id < later.cached;
        const RowLayout& layout = cached ? later.cached_layout : later.plain_layout;
        const std::byte* row = cached ? later.cached_rows + id * layout.stride : later.plain_rows + (id - later.cached) * layout.stride;
        out.fields[later.field] = kernels.scoring.unpack(plan.dtype, layout, row, 1, v.data() + later.offset);
        const std::vector<double> product = product_of(kernels, plan, later, id, v.data());
        for (const MatrixField& earlier : plan.fields) {
            if (earlier.offset >= later.offset) break;
            double term = 0;
            for (std::size_t k = earlier.offset; k < earlier.offset + earlier.dim; ++k) term += product[k] * v[k];
            add_pair(out, earlier.field, later.field, term);
        }
    }
}

void explain(const Kernels& kernels, const SumsPlan& plan, const std::int32_t* ids, Explanation& out) {
    const std::size_t n = plan.fields.size();
    std::vector<float> z(n * plan.rank);
    for (std::size_t f = 0; f < n; ++f) {
        const std::byte* row = plan.fields[f].rows + static_cast<std::size_t>(ids[f]) * plan.layout.stride;
        out.fields[f] = kernels.scoring.unpack(plan.dtype, plan.layout, row, 0, z.data() + f * plan.rank);
    }
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = i; j < n; ++j) {
            double term = 0;
            for (std::size_t k = 0; k < plan.rank; ++k) term += double{plan.signs[k]} * z[i * plan.rank + k] * z[j * plan.rank + k];
            if (i == j) out.fields[i] += term;  // its linear weight was reduced by this term
            else add_pair(out, i, j, 2 * term);
            if (i != j && plan.hash_bits)
                add_pair(out, i, j, plan.pair_weights[poly2_place(poly2_key(i, ids[i]), poly2_key(j, ids[j]), plan.hash_bits)]);
        }
}

void explain(const Kernels& kernels, const FieldAwarePlan& plan, const std::int32_t* ids, Explanation& out) {
    const std::size_t n = plan.fields.size(), width = plan.layout.second;
    std::vector<float> vectors(n * width);
    for (std::size_t f = 0; f < n; ++f) {
        const std::byte* row = plan.fields[f].rows + static_cast<std::size_t>(ids[f]) * plan.layout.stride;
        out.fields[f] = kernels.scoring.unpack(plan.dtype, plan.layout, row, 1, vectors.data() + f * width);
    }
    for (std::size_t j = 0; j < n; ++j)
        for (std::size_t i = 0; i < j; ++i)
            for (std::size_t k = 0; k < plan.dim; ++k)
                add_pair(out, i, j, double{vectors[j * width + i * plan.dim + k]} * vectors[i * width + (j - 1) * plan.dim + k]);
}

}  // namespace

Explanation explain(const Kernels& kernels, const Scorer& scorer, const std::int32_t* ids) {
    check_ids(scorer.sizes(), {}, ids, 0, 1);
    const std::size_t n = scorer.fields();
    expect(n <= max_fields, "the model has ", n, " fields; at most ", max_fields, " can be explained");
    Explanation out{0, std::vector<double>(n), std::vector<double>(n * n)};
    std::visit(
        [&](const auto& plan) {
            out.bias = plan.bias;
            explain(kernels, plan, ids, out);
        },
        scorer.plan());
    return out;
}

}  // namespace fm2
