// A layer of multi-head attention between the fields of a row, as in AutoInt, for a batch.
//
// Four matrices of heads * dim rows each project every field to its query, key, value and residual. Within a head, the output of field
// m is ReLU(Σ_k α_mk value_k + residual_m), where α_m is the softmax over k of query_m · key_k. The outputs of the heads are
// concatenated.
#pragma once

#include <cstddef>

namespace fm2 {

struct Kernels;

struct AttentionShape {
    std::size_t fields, inputs, heads, dim;  // inputs: the width of a field's input

    std::size_t width() const { return heads * dim; }  // of a field's output
    std::size_t weights() const { return 4 * width() * inputs; }
};

// Computes out [rows, fields, width] from x [rows, fields, inputs] and the matrices `weights` [4, width, inputs].
void attention_forward(const Kernels& kernels, const AttentionShape& shape, const float* weights, const float* x, std::size_t rows,
                       float* out, std::size_t threads);

// Computes the gradients of x and of the weights from the gradients of the output. Intermediate results are recomputed, which is faster
// than storing them. The result is the same for any number of threads.
void attention_backward(const Kernels& kernels, const AttentionShape& shape, const float* weights, const float* x, const float* out,
                        const float* out_gradients, std::size_t rows, float* x_gradients, float* weight_gradients, std::size_t threads);

}  // namespace fm2
