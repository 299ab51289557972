// The pair terms of field-matrixed factorization machines (the paper's equation 7) for a batch: 1/2 vᵀ S v + wᵀ v for every row v.
//
// S is symmetric, its blocks are the field matrices, and those on the diagonal are zero. What is kept of it, and has a gradient, are
// the blocks above the diagonal, packed: field by field, its matrices with all later fields side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fm2 {

struct Kernels;

class QuadraticForm {
public:
    static constexpr std::int32_t max_width = 1 << 15;

    // One dimension per field. Throws std::invalid_argument where they are out of bounds.
    explicit QuadraticForm(const std::vector<std::int32_t>& dims);

    std::size_t width() const { return after_.size(); }  // of a row
    std::size_t weights() const { return weights_; }     // packed

    // products [rows, width] = rows S + w, logits [rows] += 1/2 vᵀ S v + wᵀ v. w [width] may be null: zero.
    void score(const Kernels& kernels, const float* weights, const float* w, const float* rows, std::size_t count, float* logits,
               float* products, std::size_t threads);

    // From the slopes [rows] of the loss in the logits: its gradient in the weights, and in w (which may be null). That in a row is the
    // row's slope times its product.
    void follow(const Kernels& kernels, const float* rows, std::size_t count, const float* slopes, float* weights_slope, float* w_slope,
                std::size_t threads) const;

private:
    void lay_out(const float* weights, std::size_t panel);
    // What is packed of row a are its columns from after_[a] on; they begin at offset_[a].

    std::vector<std::size_t> after_, offset_;
    std::size_t weights_ = 0;
    std::vector<float> panels_;  // S, in panels of some columns: [panels, width, columns]
};

}  // namespace fm2
