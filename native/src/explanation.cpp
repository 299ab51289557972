#include <algorithm>
#include <stdexcept>

#include "fm2/expect.h"
#include "fm2/poly2.h"
#include "fm2/scorer.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

constexpr std::size_t max_fields = 4096;  // whose pairs take 128 MB

// One row, and its explanation so far.
struct Explained {
    const ScoringKernels& kernels;
    const Rows& row;
    Explanation& out;

    // Calls body(id, weight, value) for the values of a field; `value` is null for a single-valued field.
    template <class Body>
    void each_value(std::size_t field, const Body& body) {
        const std::int32_t id = row.ids[field];
        if (!row.is_list(field)) return body(id, 1.0f, static_cast<ValueTerms*>(nullptr));
        const List list = row.lists[field][id];
        ValueTerms* values = out.values.data() + (std::ranges::lower_bound(out.values, field, {}, &ValueTerms::field) - out.values.begin());
        for (std::size_t i = 0; i < list.size; ++i) body(list.ids[i], list.weight(i), values + i);
    }

    void add_linear(std::size_t field, double term, ValueTerms* value) {
        out.fields[field] += term;
        if (value) value->linear += term;
    }

    // Adds a term to the pair of two fields, in either order.
    void add_pair(std::size_t a, std::size_t b, double term) { out.pairs[std::min(a, b) * out.fields.size() + std::max(a, b)] += term; }
};

double inner_product(const double* a, const float* b, std::size_t count) {
    double total = 0;
    for (std::size_t k = 0; k < count; ++k) total += a[k] * b[k];
    return total;
}

class MatrixExplainer {
public:
    MatrixExplainer(Explained& row, const MatrixPlan& plan) : row_(row), plan_(plan), v_(plan.width), later_(plan.width) {}

    void explain() {
        for (const MatrixField& field : plan_.fields) pool(field);
        for (std::size_t p = 0; p < plan_.fields.size(); ++p)
            if (row_.row.is_list(plan_.fields[p].field)) explain_values(plan_.fields[p]);
    }

private:
    struct FeatureRow {
        const RowLayout& layout;
        const std::byte* at;
    };
    static FeatureRow row_of(const MatrixField& field, std::size_t id) {
        if (id < field.cached) return {field.cached_layout, field.cached_rows + id * field.cached_layout.stride};
        return {field.plain_layout, field.plain_rows + (id - field.cached) * field.plain_layout.stride};
    }

    // Returns M[p]ᵀ v of a feature, [offset]: the cached product, with its rounding error, or the product computed from the matrix.
    std::vector<double> product_of(const MatrixField& field, std::size_t id, const float* embedding) const {
        std::vector<double> product(field.offset);
        if (id < field.cached) {
            std::vector<float> cached(field.cached_layout.first);
            row_.kernels.unpack(plan_.dtype, field.cached_layout, row_of(field, id).at, 0, cached.data());
            const float* next = cached.data();
            for (const auto [begin, length] : plan_.ranges_of(field))
                for (std::size_t k = begin; k < begin + length; ++k, ++next)
                    if (k < field.offset) product[k] = *next;  // the remainder is padding
            return product;
        }
        for (const MatrixField& earlier : plan_.fields) {
            if (earlier.offset >= field.offset) break;
            for (std::size_t j = 0; j < earlier.dim; ++j)
                for (std::size_t i = 0; i < field.dim; ++i)
                    product[earlier.offset + j] += double{plan_.entry(field, i, earlier, j)} * embedding[i];
        }
        return product;
    }

    // Adds up a field's embeddings, linear weights and products, and the pair terms with the preceding fields.
    void pool(const MatrixField& field) {
        std::vector<float> embedding(field.dim);
        std::vector<double> products(field.offset);
        row_.each_value(field.field, [&](std::int32_t narrow_id, float weight, ValueTerms* value) {
            const auto id = static_cast<std::size_t>(narrow_id);
            const FeatureRow row = row_of(field, id);
            row_.add_linear(field.field, double{weight} * row_.kernels.unpack(plan_.dtype, row.layout, row.at, 1, embedding.data()), value);
            for (std::size_t k = 0; k < field.dim; ++k) v_[field.offset + k] += weight * embedding[k];
            const std::vector<double> product = product_of(field, id, embedding.data());
            for (std::size_t k = 0; k < field.offset; ++k) products[k] += weight * product[k];
        });
        for (const MatrixField& earlier : plan_.fields) {
            if (earlier.offset >= field.offset) break;
            row_.add_pair(earlier.field, field.field, inner_product(&products[earlier.offset], &v_[earlier.offset], earlier.dim));
        }
        for (std::size_t k = 0; k < field.offset; ++k) later_[k] += products[k];
    }

    // The pair terms of a value: its own product with the preceding fields, and the products of the following fields with it.
    void explain_values(const MatrixField& field) {
        std::vector<float> embedding(field.dim);
        row_.each_value(field.field, [&](std::int32_t narrow_id, float weight, ValueTerms* value) {
            const auto id = static_cast<std::size_t>(narrow_id);
            const FeatureRow row = row_of(field, id);
            row_.kernels.unpack(plan_.dtype, row.layout, row.at, 1, embedding.data());
            const double preceding = inner_product(product_of(field, id, embedding.data()).data(), v_.data(), field.offset);
            value->pairs = weight * (preceding + inner_product(&later_[field.offset], embedding.data(), field.dim));
        });
    }

    Explained& row_;
    const MatrixPlan& plan_;
    std::vector<float> v_;       // the pooled embeddings
    std::vector<double> later_;  // the sum of all products: what a field's following fields multiply its embedding by
};

const std::byte* row_of(const FeatureTable& table, const RowLayout& layout, std::int32_t id) {
    return table.rows + static_cast<std::size_t>(id) * layout.stride;
}

// Returns the weighted sums of the fields' vectors [fields, width], and adds the linear weights.
template <class Plan>
std::vector<float> pool_tables(Explained& row, const Plan& plan, std::size_t part, std::size_t width) {
    std::vector<float> pooled(plan.fields.size() * width);
    for (std::size_t f = 0; f < plan.fields.size(); ++f)
        row.each_value(f, [&](std::int32_t id, float weight, ValueTerms* value) {
            const std::byte* features = row_of(plan.fields[f], plan.layout, id);
            row.add_linear(f, row.kernels.accumulate(plan.dtype, plan.layout, features, part, weight, &pooled[f * width]), value);
        });
    return pooled;
}

// Sets the pair terms of the values of lists to their inner products with gradients(field), [width], in double precision.
template <class Plan, class Gradients>
void explain_values(Explained& row, const Plan& plan, std::size_t part, std::size_t width, const Gradients& gradients) {
    std::vector<float> vector(width);
    for (std::size_t f = 0; f < plan.fields.size(); ++f) {
        if (!row.row.is_list(f)) continue;
        const std::vector<double> gradient = gradients(f);
        row.each_value(f, [&](std::int32_t id, float weight, ValueTerms* value) {
            row.kernels.unpack(plan.dtype, plan.layout, row_of(plan.fields[f], plan.layout, id), part, vector.data());
            value->pairs += weight * inner_product(gradient.data(), vector.data(), width);
        });
    }
}

void explain_hashed_pairs(Explained& row, const SumsPlan& plan) {
    for (std::size_t i = 0; i < plan.fields.size(); ++i)
        row.each_value(i, [&](std::int32_t a, float a_weight, ValueTerms* first) {
            for (std::size_t j = i + 1; j < plan.fields.size(); ++j)
                row.each_value(j, [&](std::int32_t b, float b_weight, ValueTerms* second) {
                    const std::uint32_t place = poly2_place(poly2_key(i, a), poly2_key(j, b), plan.hash_bits);
                    const double term = double{a_weight} * b_weight * plan.pair_weights[place];
                    row.add_pair(i, j, term);
                    if (first) first->pairs += term;
                    if (second) second->pairs += term;
                });
        });
}

void explain(Explained& row, const SumsPlan& plan) {
    const std::size_t n = plan.fields.size(), rank = plan.rank;
    const std::vector<float> z = pool_tables(row, plan, 0, rank);
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = i; j < n; ++j) {
            double term = 0;
            for (std::size_t k = 0; k < rank; ++k) term += double{plan.signs[k]} * z[i * rank + k] * z[j * rank + k];
            if (i != j) row.add_pair(i, j, 2 * term);
            else if (!row.row.is_list(i)) row.out.fields[i] += term;  // its linear weight was reduced by this term
        }
    explain_values(row, plan, 0, rank, [&](std::size_t field) {
        std::vector<double> gradient(rank);
        for (std::size_t f = 0; f < n; ++f)
            for (std::size_t k = 0; f != field && k < rank; ++k) gradient[k] += 2 * double{plan.signs[k]} * z[f * rank + k];
        return gradient;
    });
    if (plan.hash_bits) explain_hashed_pairs(row, plan);
}

void explain(Explained& row, const FieldAwarePlan& plan) {
    const std::size_t n = plan.fields.size(), width = plan.layout.second;
    const std::vector<float> vectors = pool_tables(row, plan, 1, width);
    for (std::size_t j = 0; j < n; ++j)
        for (std::size_t i = 0; i < j; ++i)
            for (std::size_t k = 0; k < plan.dim; ++k)
                row.add_pair(i, j, double{vectors[j * width + i * plan.dim + k]} * vectors[i * width + (j - 1) * plan.dim + k]);
    explain_values(row, plan, 1, width, [&](std::size_t field) {
        std::vector<double> gradient(width);
        for (std::size_t f = 0; f < n; ++f)
            for (std::size_t k = 0; f != field && k < plan.dim; ++k)
                gradient[(f - (f > field)) * plan.dim + k] = vectors[f * width + (field - (field > f)) * plan.dim + k];
        return gradient;
    });
}

void explain(Explained&, const NetworkPlan&) {
    throw std::invalid_argument("a network's logit is not a sum of terms of fields and pairs of fields");
}

void explain(Explained& row, const MatrixPlan& plan) { MatrixExplainer(row, plan).explain(); }

std::vector<ValueTerms> list_values(const Rows& row) {
    std::vector<ValueTerms> values;
    for (std::size_t f = 0; f < row.fields; ++f) {
        if (!row.is_list(f)) continue;
        const List list = row.lists[f][row.ids[f]];
        for (std::size_t i = 0; i < list.size; ++i) values.push_back({f, list.ids[i], list.weight(i), 0, 0});
    }
    return values;
}

}  // namespace

Explanation explain(const Kernels& kernels, const Scorer& scorer, const Rows& given) {
    scorer.format().check_columns(given);
    const Rows rows = scorer.format().checked_copy(given, 0, 1);
    const std::size_t n = scorer.fields();
    expect(n <= max_fields, "the model has ", n, " fields; at most ", max_fields, " can be explained");
    Explanation out{0, std::vector<double>(n), std::vector<double>(n * n), list_values(rows)};
    Explained row{kernels.scoring, rows, out};
    std::visit(
        [&](const auto& plan) {
            out.bias = plan.bias;
            explain(row, plan);
        },
        scorer.plan());
    return out;
}

}  // namespace fm2
