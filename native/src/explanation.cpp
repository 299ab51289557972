#include "fm2/explanation.h"

#include <algorithm>

#include "fm2/expect.h"
#include "fm2/poly2.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

constexpr std::size_t most_explained = 4096;  // fields: their pairs take 128 MB

// Adds to the pair of two fields, whichever comes first.
void add_pair(Explanation& explanation, std::size_t a, std::size_t b, double term) {
    explanation.pairs[std::min(a, b) * explanation.fields.size() + std::max(a, b)] += term;
}

// M[p]ᵀ v of a field, [start]: as it is cached, rounding and all, or from the matrix.
std::vector<double> product_of(const Kernels& kernels, const PrefixPlan& plan, const PrefixField& field, std::size_t id, const float* v) {
    std::vector<double> product(field.start);
    if (id < field.cached) {
        std::vector<float> kept(field.whole.first);
        kernels.scoring.unpack(plan.number, field.whole, field.whole_rows + id * field.whole.stride, 0, kept.data());
        const float* next = kept.data();
        for (const auto [begin, length] : std::span(plan.stretches).subspan(field.first_stretch, field.stretches))
            for (std::size_t k = begin; k < begin + length; ++k, ++next)
                if (k < field.start) product[k] = *next;  // what stands behind is padding
        return product;
    }
    for (const PrefixField& earlier : plan.fields) {
        if (earlier.start >= field.start) break;
        for (std::size_t j = 0; j < earlier.dim; ++j)
            for (std::size_t i = 0; i < field.dim; ++i)
                product[earlier.start + j] += double{plan.entry(field, i, earlier, j)} * v[field.start + i];
    }
    return product;
}

void explain(const Kernels& kernels, const PrefixPlan& plan, const std::int32_t* ids, Explanation& out) {
    std::vector<float> v(plan.width);
    for (const PrefixField& later : plan.fields) {
        const auto id = static_cast<std::size_t>(ids[later.field]);
        const bool whole = id < later.cached;
        const std::byte* row = whole ? later.whole_rows + id * later.whole.stride : later.rest_rows + (id - later.cached) * later.rest.stride;
        out.fields[later.field] = kernels.scoring.unpack(plan.number, whole ? later.whole : later.rest, row, 1, v.data() + later.start);
        const std::vector<double> product = product_of(kernels, plan, later, id, v.data());
        for (const PrefixField& earlier : plan.fields) {
            if (earlier.start >= later.start) break;
            double term = 0;
            for (std::size_t k = earlier.start; k < earlier.start + earlier.dim; ++k) term += product[k] * v[k];
            add_pair(out, earlier.field, later.field, term);
        }
    }
}

void explain(const Kernels& kernels, const SquaresPlan& plan, const std::int32_t* ids, Explanation& out) {
    const std::size_t n = plan.fields.size();
    std::vector<float> z(n * plan.rank);
    for (std::size_t f = 0; f < n; ++f) {
        const std::byte* row = plan.fields[f].rows + static_cast<std::size_t>(ids[f]) * plan.layout.stride;
        out.fields[f] = kernels.scoring.unpack(plan.number, plan.layout, row, 0, z.data() + f * plan.rank);
    }
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = i; j < n; ++j) {
            double term = 0;
            for (std::size_t k = 0; k < plan.rank; ++k) term += double{plan.signs[k]} * z[i * plan.rank + k] * z[j * plan.rank + k];
            if (i == j) out.fields[i] += term;  // which its linear weight was lessened by
            else add_pair(out, i, j, 2 * term);
            if (i != j && plan.hash_bits) add_pair(out, i, j, plan.pairs[poly2_place(poly2_key(i, ids[i]), poly2_key(j, ids[j]), plan.hash_bits)]);
        }
}

void explain(const Kernels& kernels, const PartnersPlan& plan, const std::int32_t* ids, Explanation& out) {
    const std::size_t n = plan.fields.size(), width = plan.layout.second;
    std::vector<float> vectors(n * width);
    for (std::size_t f = 0; f < n; ++f) {
        const std::byte* row = plan.fields[f].rows + static_cast<std::size_t>(ids[f]) * plan.layout.stride;
        out.fields[f] = kernels.scoring.unpack(plan.number, plan.layout, row, 1, vectors.data() + f * width);
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
    expect(n <= most_explained, "there are ", n, " fields, and pairs of ", most_explained, " at most are told apart");
    Explanation out{0, std::vector<double>(n), std::vector<double>(n * n)};
    std::visit([&](const auto& plan) {
        out.bias = plan.bias;
        explain(kernels, plan, ids, out);
    }, scorer.plan());
    return out;
}

}  // namespace fm2
