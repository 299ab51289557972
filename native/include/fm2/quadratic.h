// The pair terms of field-matrixed factorization machines (the paper's equation 7) for a batch: 1/2 vᵀ S v + wᵀ v for every row v.
//
// S is symmetric. Its blocks are the field matrices, and its diagonal blocks are zero. The weights are the blocks above the diagonal,
// packed field by field: each field's matrices with all later fields, side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fm2 {

struct Kernels;

class QuadraticForm {
public:
    static constexpr std::int32_t max_width = 1 << 15;

    // Takes one dimension per field. Throws std::invalid_argument if one is out of range.
    explicit QuadraticForm(const std::vector<std::int32_t>& dims);

    std::size_t width() const { return after_.size(); }  // of a row
    std::size_t weights() const { return weights_; }     // packed

    // products [rows, width] = rows S + w, logits [rows] += 1/2 vᵀ S v + wᵀ v. A null w [width] means zero.
    void score(const Kernels& kernels, const float* weights, const float* w, const float* rows, std::size_t count, float* logits,
               float* products, std::size_t threads);

    // Computes the gradients of the weights and of w (which may be null) from the gradients [rows] of the logits. The gradient of a row
    // is its logit's gradient times its product.
    void backward(const Kernels& kernels, const float* rows, std::size_t count, const float* gradients, float* weight_gradients,
                  float* linear_gradient, std::size_t threads) const;

private:
    void fill_panel(const float* weights, std::size_t panel);

    // The packed columns of row a of S start at column after_[a]; their weights start at offset_[a].
    std::vector<std::size_t> after_, offset_;
    std::size_t weights_ = 0;
    std::vector<float> panels_;  // S, split into panels of columns: [panels, width, panel_columns]
};

}  // namespace fm2
