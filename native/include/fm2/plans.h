// The plans: ways to score a compiled model, and the memory layout of the feature rows each of them reads.
//
// A feature row is one contiguous piece of memory with everything a feature contributes to a prediction. Its numbers are float32,
// float16, or int8 with a scale; the linear weight is always float32. A prediction is linear in the feature row of each field, so a
// multi-valued field contributes the weighted sum of its features' rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "fm2/sparse_network.h"

namespace fm2 {

class ModelFile;

enum class Dtype : std::uint8_t { f32, f16, i8 };

inline std::size_t dtype_size(Dtype dtype) { return dtype == Dtype::f32 ? 4 : dtype == Dtype::f16 ? 2 : 1; }
inline std::size_t padded(std::size_t count) { return (count + 7) / 8 * 8; }

// The layout of one feature row: the numbers of a first part, padded with zeros to a multiple of eight because kernels read eight at a
// time; the numbers of a second part, without padding; the linear weight; and, for int8, a scale for each part.
struct RowLayout {
    std::size_t first, second;                            // how many numbers
    std::size_t second_at, linear_at, scales_at, stride;  // bytes

    RowLayout(Dtype dtype, std::size_t first, std::size_t second);
};

// Writes `rows` feature rows from `first` [rows, layout.first], `second` [rows, layout.second] (null if that part is empty) and
// `linear` [rows]. Returns the largest rounding error of a number.
float pack_rows(Dtype dtype, const RowLayout& layout, std::size_t rows, const float* first, const float* second, const float* linear,
                std::byte* out, std::size_t threads);

// Columns [begin, begin + length) of a row's concatenated embeddings; `length` is a multiple of eight.
struct ColumnRange {
    std::uint32_t begin, length;
};

// A field of a MatrixPlan. The members that scoring with cached products reads come first, so that they share few cache lines.
struct MatrixField {
    std::size_t field;                       // its column in the ids
    std::size_t cached;                      // how many of its features have cached products: those with the ids below this
    std::size_t dim, offset;                 // its embedding takes the columns [offset, offset + dim)
    std::uint32_t first_range, range_count;  // the plan's column ranges it interacts with
    RowLayout cached_layout;                 // of features with a cached product: the product, then the embedding
    const std::byte* cached_rows;
    RowLayout plain_layout;  // of the other features: the embedding only
    const std::byte* plain_rows;
    const float* matrix;  // M[p]: [dim, cached_layout.first], or the diagonals of its blocks [cached_layout.first]
    std::size_t size;     // how many features it has
};

// The plans "direct" and "cached": pair terms through field matrices. The embeddings of a row are concatenated in an order of the fields
// that the plan chooses. The later field p of each pair handles all earlier fields at once: its term is <M[p]ᵀ v_p, prefix>, where the
// prefix is the concatenation so far, restricted to the column ranges where M[p] is not zero. The product M[p]ᵀ v_p depends on the
// feature alone, so it can be cached; for other features it is computed. With nothing cached this applies one half of S to the row; with
// everything cached it is section 4.2 of the paper, and section 4.3 if the fields are ordered by dimension.
//
// The last eight columns of a field's ranges may reach into its own columns, or beyond; its matrix is zero there.
struct MatrixPlan {
    std::vector<MatrixField> fields;  // in the plan's order
    std::vector<ColumnRange> ranges;  // field by field; those of a field are sorted and do not overlap
    std::size_t columns;              // of the ids
    std::size_t width;                // the sum of the dimensions
    Dtype dtype;
    bool diagonal;  // the blocks of M are diagonal, and all dimensions are equal
    float bias;

    std::size_t scratch_floats() const { return padded(width) + 8; }
    std::span<const ColumnRange> ranges_of(const MatrixField& field) const {
        return std::span(ranges).subspan(field.first_range, field.range_count);
    }

    // Returns an entry of the matrix between two fields, in either order.
    float entry(const MatrixField& a, std::size_t i, const MatrixField& b, std::size_t j) const;
};

// The rows of one field's features, in the order of their ids.
struct FeatureTable {
    std::size_t size;
    const std::byte* rows;
};

// The plans "sums", "sum of embeddings" and "spectral": the logit is the sum of the linear weights plus Σ_k sign_k (Σ z_k)². A
// factorization machine has this form, and so has any quadratic form through its spectrum. A rank of 0 is logistic regression. With
// hash_bits, the weights of Poly2's pairs are added.
//
// The square includes the product of each field's vector with itself, which is not a pair of fields. The linear weights of single-valued
// fields are reduced by it. That of a multi-valued field depends on all its values, so it is subtracted when a row is scored.
struct SumsPlan {
    std::vector<FeatureTable> fields;
    std::vector<std::uint32_t> single_fields, list_fields;  // the numbers of the single-valued and of the multi-valued fields
    RowLayout layout;  // the first part is z
    std::size_t rank;
    Dtype dtype;
    const float* signs;         // [padded(rank)]
    const float* pair_weights;  // [2^hash_bits]
    std::int32_t hash_bits;
    float bias;
};

// The plan of field-aware factorization machines: a feature has a vector for every other field, and the term of a pair is the inner
// product of the two vectors made for each other. The vector for field j is at index j, or j - 1 if j follows the feature's field.
struct FieldAwarePlan {
    std::vector<FeatureTable> fields;
    RowLayout layout;  // the second part has the vectors
    std::size_t dim;
    Dtype dtype;
    float bias;

    std::size_t scratch_floats() const { return fields.size() * layout.second; }  // for rows with lists
};

// The plan of networks: a network maps the concatenated embeddings of a row to a number, to which the bias and the linear weights are
// added. Either that is a sparse network, or the section "network.onnx" has it for another runtime.
struct NetworkPlan {
    std::vector<MatrixField> fields;  // without cached products; with several tables, a field of the model occurs once in each
    std::size_t width;                // the sum of the dimensions
    Dtype dtype;
    float bias;
    std::optional<SparseNetwork> sparse;
};

using Plan = std::variant<MatrixPlan, SumsPlan, FieldAwarePlan, NetworkPlan>;

// Returns the plan of a model with fields of these sizes; lists[f] is 1 if field f is multi-valued. The plan points into the file. Throws
// BadModel if sections do not match each other: the file may come from anyone, so nothing in it is trusted.
Plan read_plan(const ModelFile& file, std::span<const std::int32_t> sizes, std::span<const std::uint8_t> lists);

}  // namespace fm2
