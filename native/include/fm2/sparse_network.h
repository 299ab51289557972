// A perceptron whose weights are mostly zero, next to pair terms between embeddings of equal dimension: what is left of a pruned network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fm2 {

class ModelFile;
struct Kernels;

// A matrix without its zeros, row by row.
struct SparseMatrix {
    struct Entry {
        std::uint32_t column;
        float value;
    };

    std::size_t rows, columns;
    std::vector<std::uint32_t> begins;  // [rows + 1]
    std::vector<Entry> entries;

    std::span<const Entry> row(std::size_t r) const { return std::span(entries).subspan(begins[r], begins[r + 1] - begins[r]); }
};

enum class Activation : std::uint8_t { relu, gelu, silu, tanh };

class SparseNetwork {
public:
    static constexpr std::size_t block_rows = 64;  // scored at once, so that their numbers stay in the cache

    // Reads the sections "network.*" for embeddings of `fields` fields of dimension `dim`. The matrices are copied and checked: scoring
    // reads memory where their entries point. Throws BadModel if sections do not match each other.
    SparseNetwork(const ModelFile& file, std::size_t fields, std::size_t dim);

    // Adds the terms of up to block_rows rows of embeddings [rows, stride] to their logits.
    void add(const Kernels& kernels, const float* rows, std::size_t count, std::size_t stride, float* logits) const;

private:
    void add_pairs(const float* x, std::size_t count, std::size_t lanes, float* logits) const;
    void activate(float* values, std::size_t count) const;

    std::size_t fields_, dim_;
    Activation activation_;
    SparseMatrix pairs_;  // the weight of fields i and j in row i, i < j
    std::vector<SparseMatrix> layers_;
    std::vector<float> biases_;  // of the layers, one after the other, and of the last one
    std::vector<float> last_;  // from the last hidden layer to the logit
    std::size_t widest_;  // layer
};

}  // namespace fm2
