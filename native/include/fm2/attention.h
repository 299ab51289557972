// A layer of attention between the fields of a row, as AutoInt has it, for a batch.
//
// Four matrices, each `heads` times `dim` rows, make of every field of a row its query, key, value and residual. In a head, field m
// takes Σ_k α_mk value_k, where α_m is the softmax over k of query_m · key_k. What comes out, the heads side by side, is
// ReLU(that + residual_m).
#pragma once

#include <cstddef>

namespace fm2 {

struct Kernels;

struct AttentionShape {
    std::size_t fields, inputs, heads, dim;  // inputs: of a field

    std::size_t width() const { return heads * dim; }  // of what comes out of a field
    std::size_t weights() const { return 4 * width() * inputs; }
};

// out [rows, fields, width] from x [rows, fields, inputs] and the matrices [4, width, inputs].
void attend(const Kernels& kernels, const AttentionShape& shape, const float* weights, const float* x, std::size_t rows, float* out,
            std::size_t threads);

// From the slopes of the loss in what came out: those in x, and in the matrices. What lies between is made again, which is quicker than
// to keep it. The result is the same for any number of threads.
void follow_attention(const Kernels& kernels, const AttentionShape& shape, const float* weights, const float* x, const float* out,
                      const float* out_slopes, std::size_t rows, float* x_slopes, float* weights_slopes, std::size_t threads);

}  // namespace fm2
