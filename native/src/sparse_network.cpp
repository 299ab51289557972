#include "fm2/sparse_network.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "aligned_buffer.h"
#include "fm2/model_file.h"
#include "fm2/plans.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

constexpr std::size_t max_matrices = 1 << 10;

// Takes the first `count` numbers of a section.
template <class T>
std::span<const T> take(const ModelFile& file, std::span<const T>& left, std::size_t count) {
    if (count > left.size()) file.reject("a matrix of the network is truncated");
    const std::span<const T> taken = left.first(count);
    left = left.subspan(count);
    return taken;
}

// Hands out the matrices one by one.
class MatrixReader {
public:
    explicit MatrixReader(const ModelFile& file)
        : file_(file),
          shapes_(file.numbers<std::uint32_t>("network.shapes")),
          begins_(file.numbers<std::uint32_t>("network.begins")),
          columns_(file.numbers<std::uint32_t>("network.columns")),
          values_(file.numbers<float>("network.values", columns_.size())) {
        if (shapes_.size() % 2 || shapes_.size() < 2 || shapes_.size() > 2 * max_matrices) file.reject("invalid section 'network.shapes'");
    }

    std::size_t left() const { return shapes_.size() / 2; }

    SparseMatrix next(std::size_t expected_columns) {
        const auto shape = take(file_, shapes_, 2);
        SparseMatrix matrix{shape[0], shape[1], {}, {}};
        if (!matrix.rows || matrix.columns != expected_columns) file_.reject("the matrices of the network do not match each other");
        const auto begins = take(file_, begins_, matrix.rows + 1);
        matrix.begins.assign(begins.begin(), begins.end());
        if (matrix.begins[0] || !std::ranges::is_sorted(matrix.begins)) file_.reject("a matrix of the network has unordered rows");
        const auto columns = take(file_, columns_, matrix.begins.back());
        const auto values = take(file_, values_, columns.size());
        for (std::size_t i = 0; i < columns.size(); ++i) matrix.entries.push_back({columns[i], values[i]});
        for (const auto [column, value] : matrix.entries)
            if (column >= matrix.columns) file_.reject("a matrix of the network has no column " + std::to_string(column));
        return matrix;
    }

    void finish() const {
        if (!begins_.empty() || !columns_.empty()) file_.reject("the matrices of the network are too long");
    }

private:
    const ModelFile& file_;
    std::span<const std::uint32_t> shapes_, begins_, columns_;
    std::span<const float> values_;
};

Activation read_activation(const ModelFile& file) {
    const std::int64_t number = file.numbers<std::int64_t>("network.activation", 1)[0];
    if (number < 0 || number > static_cast<std::int64_t>(Activation::tanh)) file.reject("unknown activation of the network");
    return static_cast<Activation>(number);
}

// Writes rows [count, stride] as columns [width, lanes], padded with zeros.
void transpose(const float* rows, std::size_t count, std::size_t stride, std::size_t width, std::size_t lanes, float* out) {
    for (std::size_t k = 0; k < width; ++k) {
        for (std::size_t r = 0; r < count; ++r) out[k * lanes + r] = rows[r * stride + k];
        std::fill(out + k * lanes + count, out + (k + 1) * lanes, 0.0f);
    }
}

}  // namespace

SparseNetwork::SparseNetwork(const ModelFile& file, std::size_t fields, std::size_t dim)
    : fields_(fields), dim_(dim), activation_(read_activation(file)) {
    MatrixReader matrices(file);
    pairs_ = matrices.next(fields);
    if (pairs_.rows != fields) file.reject("the network's matrix of pairs is not square");
    std::size_t width = widest_ = fields * dim, units = 0;
    while (matrices.left()) {
        layers_.push_back(matrices.next(width));
        width = layers_.back().rows;
        widest_ = std::max(widest_, width);
        units += width;
    }
    matrices.finish();
    const auto biases = file.numbers<float>("network.biases", units + 1), last = file.numbers<float>("network.last", width);
    biases_.assign(biases.begin(), biases.end());
    last_.assign(last.begin(), last.end());
}

void SparseNetwork::activate(float* values, std::size_t count) const {
    const auto each = [&](const auto& function) {
        for (std::size_t i = 0; i < count; ++i) values[i] = function(values[i]);
    };
    switch (activation_) {
        case Activation::relu: return each([](float x) { return x < 0 ? 0 : x; });  // NaN stays NaN
        case Activation::gelu: return each([](float x) { return 0.5f * x * (1 + std::erf(x * 0.70710678f)); });
        case Activation::silu: return each([](float x) { return x / (1 + std::exp(-x)); });
        case Activation::tanh: return each([](float x) { return std::tanh(x); });
    }
}

// Adds Σ r[i, j] <v_i, v_j> for columns x [fields, dim, lanes]: each field is multiplied by the weighted sum of its later partners.
void SparseNetwork::add_pairs(const float* x, std::size_t count, std::size_t lanes, float* logits) const {
    static thread_local std::vector<float> sums;
    const std::size_t length = dim_ * lanes;
    for (std::size_t i = 0; i < fields_; ++i) {
        if (pairs_.row(i).empty()) continue;
        sums.assign(length, 0.0f);
        for (const auto [j, weight] : pairs_.row(i))
            for (std::size_t k = 0; k < length; ++k) sums[k] += weight * x[j * length + k];
        for (std::size_t k = 0; k < dim_; ++k)
            for (std::size_t r = 0; r < count; ++r) logits[r] += sums[k * lanes + r] * x[i * length + k * lanes + r];
    }
}

void SparseNetwork::add(const Kernels& kernels, const float* rows, std::size_t count, std::size_t stride, float* logits) const {
    static thread_local AlignedBuffer buffer;
    const std::size_t lanes = count == 1 ? 1 : padded(count);
    buffer.reserve(2 * widest_ * lanes * sizeof(float));
    auto* x = reinterpret_cast<float*>(buffer.data());
    float* next = x + widest_ * lanes;
    transpose(rows, count, stride, fields_ * dim_, lanes, x);
    add_pairs(x, count, lanes, logits);
    const float* bias = biases_.data();
    for (const SparseMatrix& layer : layers_) {
        kernels.sparse.multiply(layer, bias, x, lanes, next);
        activate(next, layer.rows * lanes);
        bias += layer.rows;
        std::swap(x, next);
    }
    for (std::size_t r = 0; r < count; ++r) logits[r] += *bias;
    for (std::size_t u = 0; u < last_.size(); ++u)
        for (std::size_t r = 0; r < count; ++r) logits[r] += last_[u] * x[u * lanes + r];
}

}  // namespace fm2
