// The kernels, functions that are compiled once per instruction set, and their arguments. Each level defines one Kernels object; cpu.cpp
// selects it on first use.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fm2/attention.h"
#include "fm2/embedding.h"
#include "fm2/ffm.h"
#include "fm2/plans.h"
#include "fm2/poly2.h"
#include "fm2/rows.h"

namespace fm2 {

// Rows [begin, end) of a batch, looked up in a table.
struct Lookup {
    const Minibatch& batch;
    const Embeddings& table;
    std::size_t begin, end;
};

// The distinct features of one or more fields that share their rows of a table.
struct Distinct {
    std::size_t field;             // one of the fields
    std::size_t count;             // of distinct features
    const std::int32_t* features;  // [count]
};

// The values of one field in a batch, and each value's index among the distinct features (its slot).
struct FieldBatch {
    std::size_t field;
    std::size_t rows;           // of the batch
    const std::int32_t* slots;  // [rows], or for a multi-valued field [values]
    const BatchLists* lists;    // null unless the field is multi-valued
};

struct TableKernels {
    // Copies the rows' embeddings to out [size, width] and applies the mask. Everywhere, a multi-valued field contributes the weighted sum
    // of its features' rows.
    void (*gather)(const Lookup& lookup, const Mask& mask, float* out);
    // logits[row] += the sum of the row's linear weights.
    void (*add_linear)(const Lookup& lookup, float* logits);
    // logits[row] += the pair terms of a factorization machine; sums[row] = the sum of its embeddings. Both include the signs, if any.
    void (*add_pairs)(const Lookup& lookup, const float* signs, float* logits, float* sums);
    // sums [count, dim] += the gradients of the field's distinct features, from gradient.rows, or from gradient.sums. The latter is, for a
    // field with single values, without the term that depends on the weights.
    void (*sum_gradients)(const FieldBatch& batch, const Embeddings& table, const Gradient& gradient, float* sums);
    // sums [count] += for each distinct feature, the sum of the logit gradients of its rows, times the weights of its values.
    void (*sum_logits)(const FieldBatch& batch, const float* logits, float* sums);
    // Updates the distinct features with the gradients sums - logit_sums * signs * weights; logit_sums [count] may be null.
    void (*update_rows)(const Distinct& distinct, const Update& update, std::int64_t step, const float* sums, const float* logit_sums);
    // Updates the moving averages of features [begin, end) of a field to the given step.
    void (*finish_average)(const Embeddings& table, std::size_t field, std::size_t begin, std::size_t end, std::int64_t step);
};

// The values of a multi-valued field in a few rows. Row r has the values [offsets[r], offsets[r + 1]).
struct FfmList {
    std::size_t field;
    float* table;  // the weights of the field's features
    BatchLists values;
};

// A few rows of a batch, with pointers to their features' weights. A multi-valued field has a buffer instead: `pool` writes the weighted
// sum of its values' weights there for one row, and `update` may overwrite it.
struct FfmTile {
    const FfmLayout& layout;
    std::size_t begin, end;  // rows
    float* const* weights;   // [end, fields]
    std::span<const FfmList> lists;
    float* partners;  // a buffer as long as a row of weights, if there are lists
};

// The contribution of each block to the rows' logits.
using FfmTerms = float[FfmLayout::max_blocks][ffm_tile];

struct FfmKernels {
    // terms[b][row] = the sum of the pair terms of block b, and of its linear weights if it has any, for blocks [begin, end).
    void (*score)(const FfmTile& tile, std::size_t begin, std::size_t end, FfmTerms& terms);
    // Updates the weights of blocks [begin, end), row by row, with the gradients [rows] of the logits.
    void (*update)(const FfmTile& tile, std::size_t begin, std::size_t end, const float* gradients, const FfmOptimizers& optimizers);
    // Fills the buffers of a row's multi-valued fields for blocks [begin, end).
    void (*pool)(const FfmTile& tile, std::size_t row, std::size_t begin, std::size_t end);
    // Updates the values of a row's multi-valued fields, with the gradient of the logit, after `pool` and before `update`.
    void (*update_lists)(const FfmTile& tile, std::size_t row, std::size_t begin, std::size_t end, float gradient,
                         const FfmOptimizers& optimizers);
};

// The values of a row and their pairs: those of different fields, in order.
struct Poly2Row {
    std::size_t values, pairs;
    const std::uint32_t* starts;  // [fields + 1] the number of each field's first value in the row, then of all values
    const std::uint64_t* features;  // [values], counted over all fields
    const std::uint64_t* keys;      // [values]
    const float* weights;           // [values]; null: all 1
    std::uint32_t* buckets;         // [pairs] the pairs' weights; written by `score`
    float* products;                // [pairs] the products of the values' weights; null: all 1; written by `score`
};

// A few rows of a batch, one after the other.
struct Poly2Tile {
    // `weighted` if there are multi-valued fields.
    template <bool weighted>
    Poly2Row row(std::size_t number) const {
        if constexpr (!weighted)
            return {fields, pairs, starts, features + number * fields, keys + number * fields, nullptr, buckets + number * pairs, nullptr};
        const std::size_t value = first_value[number] - first_value[0], pair = first_pair[number] - first_pair[0];
        return {first_value[number + 1] - first_value[number],
                first_pair[number + 1] - first_pair[number],
                starts + number * (fields + 1),
                features + value,
                keys + value,
                weights + value,
                buckets + pair,
                products + pair};
    }

    const Poly2& model;
    std::size_t fields, rows;
    std::size_t pairs;                            // of a row, if no field is multi-valued
    const std::size_t *first_value, *first_pair;  // [rows + 1] otherwise
    const std::uint32_t* starts;                  // [rows, fields + 1], or [fields + 1] if no field is multi-valued
    const std::uint64_t *features, *keys;
    const float* weights;  // null if no field is multi-valued
    std::uint32_t* buckets;
    float* products;
};

// One of several shares of the weights.
struct Poly2Part {
    std::size_t number, of;  // number < of
    std::size_t pairs;        // of a row, at most
    std::uint32_t* buckets;   // scratch [2, pairs + 1]
    float* products;          // scratch [2, pairs + 1]; null if no field is multi-valued
};

// A few rows of a batch for logistic regression. Each thread processes some of the fields, whose weights stay in its processor's
// cache.
struct LinearTile {
    static constexpr std::size_t group_fields = 4;  // fields whose weights are summed separately; the result depends on it

    const Poly2& model;
    const Minibatch& batch;
    const std::uint64_t* first;  // [fields] number of each field's first feature
    std::size_t begin, rows;

    std::size_t groups() const { return (batch.fields() + group_fields - 1) / group_fields; }
    std::size_t begin_of(std::size_t group) const { return std::min(batch.fields(), group * group_fields); }
    bool has_lists(std::size_t group) const {
        for (std::size_t f = begin_of(group); f < begin_of(group + 1); ++f)
            if (batch.is_list(f)) return true;
        return false;
    }
};

struct Poly2Kernels {
    // logits[row] for rows [begin, end).
    void (*score)(const Poly2Tile& tile, std::size_t begin, std::size_t end, float* logits);
    // Updates a part of the weights, row by row, with the gradients [rows] of the logits.
    void (*update)(const Poly2Tile& tile, const Poly2Part& part, const float* gradients, const Poly2Optimizers& optimizers);
    // sums[row] = the sum of the weights of a group of fields.
    void (*sum_group)(const LinearTile& tile, std::size_t group, float* sums);
    // Updates the weights of the groups number, number + of, ..., row by row; part 0 also updates the bias.
    void (*update_groups)(const LinearTile& tile, const Poly2Part& part, const float* gradients, const Optimizer& optimizer);
};

constexpr std::size_t panel_columns = 16, block_rows = 24;

struct QuadraticKernels {
    // products [count, width] = rows [count, width] times S, which is stored in panels [width / 16, rounded up][width][16].
    void (*multiply)(const float* rows, std::size_t count, std::size_t width, const float* panels, float* products);
    // products += w; logits += 1/2 vᵀ (product) + wᵀ v.
    void (*finish)(const float* rows, std::size_t count, std::size_t width, const float* w, float* products, float* logits);
    // outer [24, stride] = rows [begin, begin + 24) of Σ gradient v vᵀ, starting at column `begin` rounded down to a multiple of 16;
    // rows from `width` on are zero. sums [24] = Σ gradient v.
    void (*outer_products)(const float* rows, std::size_t count, std::size_t width, const float* gradients, std::size_t begin, float* outer,
                           std::size_t stride, float* sums);
    // forms[row] += vᵀ U v for rows v that are `stride` floats long. U is stored in panels like S above; the columns of a panel are zero
    // from row `depths[panel]` on.
    void (*add_forms)(const float* rows, std::size_t stride, std::size_t count, std::size_t width, const float* panels,
                      const std::size_t* depths, float* forms);
};

constexpr std::size_t attention_lane = 8;  // rows of matrices are padded with zeros to a multiple of this

inline std::size_t in_lanes(std::size_t count) { return (count + attention_lane - 1) / attention_lane * attention_lane; }

// The number of floats for a row's intermediate results and their gradients.
inline std::size_t attention_scratch_size(const AttentionShape& shape) {
    const std::size_t fields = in_lanes(shape.fields), projected = 4 * shape.width();
    return 2 * fields * fields + 3 * fields * in_lanes(shape.dim) + 2 * fields * in_lanes(projected) +
           (2 * fields + projected) * in_lanes(shape.inputs);
}

// `weights` is [4 width, inputs] and `transposed` is [inputs, 4 width], both with padded rows.
struct AttentionKernels {
    void (*forward)(const AttentionShape& shape, const float* transposed, const float* x, float* out, float* scratch);
    // Writes the gradients of x; adds to the gradients of the weights, which have padded rows too.
    void (*backward)(const AttentionShape& shape, const float* weights, const float* transposed, const float* x, const float* out,
                     const float* out_gradients, float* x_gradients, float* weight_gradients, float* scratch);
};

struct ScoringKernels {
    // Write the logits of rows, which must be valid. `scratch` has the plan's scratch_floats().
    void (*score_matrices)(const MatrixPlan& plan, const Rows& rows, float* logits, float* scratch);
    void (*score_sums)(const SumsPlan& plan, const Rows& rows, float* logits);
    void (*score_field_aware)(const FieldAwarePlan& plan, const Rows& rows, float* logits, float* scratch);
    // Writes the numbers of a part (0 or 1) of a feature row as floats; returns the linear weight.
    float (*unpack)(Dtype dtype, const RowLayout& layout, const std::byte* row, std::size_t part, float* out);
    // Adds `weight` times the numbers of a part of a feature row to `out`; returns `weight` times the linear weight.
    float (*accumulate)(Dtype dtype, const RowLayout& layout, const std::byte* row, std::size_t part, float weight, float* out);
    // For one field and rows whose ids are `id_stride` apart: writes the embeddings to out [rows, stride] and adds the linear weights to
    // linear [rows]. If there are lists, the ids are numbers of lists.
    void (*embed)(Dtype dtype, const MatrixField& field, const Lists& lists, const std::int32_t* ids, std::size_t id_stride,
                  std::size_t rows, float* out, std::size_t stride, float* linear);
    // Adds the pair terms <product, preceding embeddings> of fields whose products are all cached as float32 to terms [rows]. The ids of
    // field f are in columns[f] of rows that are `id_stride` apart. `vectors` [rows, stride] is readable up to a multiple of eight.
    void (*add_products)(std::span<const MatrixField> fields, const std::size_t* columns, const std::int32_t* ids, std::size_t id_stride,
                         std::size_t rows, const float* vectors, std::size_t stride, float* terms);
    // Writes <row r, vector> to out[r], for `count` rows of `width` floats that are `stride` apart.
    void (*inner_products)(const float* rows, std::size_t stride, std::size_t count, const float* vector, std::size_t width, float* out);
};

struct SparseKernels {
    // out [matrix rows, lanes] = the matrix times x [matrix columns, lanes], plus a bias [matrix rows]. `lanes` is 1, or 8, 16, ..., 64.
    void (*multiply)(const SparseMatrix& matrix, const float* bias, const float* x, std::size_t lanes, float* out);
};

struct Kernels {
    // Writes the positions in data[0, size) of all bytes equal to a or b, in order, to positions [size]; returns their number.
    std::size_t (*find_bytes)(const char* data, std::size_t size, char a, char b, std::uint32_t* positions);
    TableKernels tables;
    // losses = weight * -log(likelihood of the label), gradients = weight * (p - label), with p = 1 / (1 + e^-logit).
    void (*logistic)(const float* logits, const float* labels, const float* weights, std::size_t count, float* losses, float* gradients);
    FfmKernels ffm;
    Poly2Kernels poly2;
    QuadraticKernels quadratic;
    AttentionKernels attention;
    ScoringKernels scoring;
    SparseKernels sparse;
};

const Kernels& kernels();                         // of the level in use
const Kernels& kernels(const std::string& name);  // of a level by name, for tests

namespace generic {
extern const Kernels kernels;
}
namespace x86_64_v3 {
extern const Kernels kernels;
}

// The compiled levels that this processor supports, slowest first.
const std::vector<std::string>& cpu_levels();

// The level in use: the last of cpu_levels(), or the one set by the environment variable FM2_SIMD.
// Throws std::runtime_error if FM2_SIMD is not one of cpu_levels().
const std::string& cpu_level();

}  // namespace fm2
