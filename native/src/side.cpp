#include "side.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "fm2/expect.h"

namespace fm2 {
namespace {

constexpr std::size_t room_for_products = 1 << 19;  // floats: 2 MB
constexpr std::size_t widest_form = 1 << 13;        // dimensions, whose form takes 256 MB

}  // namespace

Side::Side(const PrefixPlan& plan, std::span<const std::size_t> numbers) : plan_(plan), columns_(numbers.size()) {
    std::iota(columns_.begin(), columns_.end(), 0);
    const auto origin = [&](std::size_t column) { return &*std::ranges::find(plan.fields, numbers[column], &PrefixField::field); };
    std::ranges::stable_sort(columns_, std::greater(), [&](std::size_t column) { return origin(column)->size; });
    for (const std::size_t column : columns_) {
        origins_.push_back(origin(column));
        fields_.push_back(*origins_.back());
        fields_.back().start = width_;
        width_ += fields_.back().dim;
    }
    formed_ = fields_.size();
    for (std::size_t taken = 0; formed_; --formed_) {
        taken += fields_[formed_ - 1].size * (fields_[formed_ - 1].start + fields_[formed_ - 1].dim);
        if (taken > room_for_products) break;
    }
    make_form(formed_);
    for (std::size_t place = formed_; place < fields_.size(); ++place) make_table(place);
}

// As kernels of quadratic forms like it; a field meets what stands before it.
void Side::make_form(std::size_t fields) {
    if (fields < 2) return;
    form_width_ = fields < fields_.size() ? fields_[fields].start : width_;
    expect(form_width_ <= widest_form, "rank: the large fields of one side have ", form_width_, " dimensions; ", widest_form, " are the most");
    depths_.assign((form_width_ + panel_columns - 1) / panel_columns, 0);
    panels_.assign(depths_.size() * panel_columns * form_width_, 0);
    for (std::size_t q = 0; q < fields; ++q)
        for (std::size_t j = 0; j < fields_[q].dim; ++j) {
            const std::size_t column = fields_[q].start + j;
            float* panel = panels_.data() + column / panel_columns * panel_columns * form_width_;
            depths_[column / panel_columns] = fields_[q].start;
            for (std::size_t p = 0; p < q; ++p)
                for (std::size_t i = 0; i < fields_[p].dim; ++i)
                    panel[(fields_[p].start + i) * panel_columns + column % panel_columns] = plan_.entry(*origins_[p], i, *origins_[q], j);
        }
}

void Side::make_table(std::size_t place) {
    const PrefixField& origin = *origins_[place];
    PrefixField& field = fields_[place];
    field.whole = RowLayout(Number::f32, field.start, field.dim);
    std::vector<Line>& table = tables_.emplace_back((field.size * field.whole.stride + sizeof(Line) - 1) / sizeof(Line));
    std::vector<float> matrix(field.dim * field.start), embedding(field.dim), product(field.start);
    for (std::size_t j = 0; j < field.dim; ++j)
        for (std::size_t p = 0; p < place; ++p)
            for (std::size_t i = 0; i < fields_[p].dim; ++i)
                matrix[j * field.start + fields_[p].start + i] = plan_.entry(*origins_[p], i, origin, j);
    for (std::size_t id = 0; id < field.size; ++id) {
        const auto number = static_cast<std::int32_t>(id);
        float linear = 0;
        kernels().scoring.embed(plan_.number, origin, &number, 1, 1, embedding.data(), field.dim, &linear);
        std::ranges::fill(product, 0.0f);
        for (std::size_t j = 0; j < field.dim; ++j)
            for (std::size_t k = 0; k < field.start; ++k) product[k] += embedding[j] * matrix[j * field.start + k];
        pack_rows(Number::f32, field.whole, 1, product.data(), embedding.data(), &linear, table.data()->bytes + id * field.whole.stride, 1);
    }
    field.cached = field.size;
    field.whole_rows = table.data()->bytes;
}

void Side::gather(const Kernels& kernels, const std::int32_t* ids, std::size_t rows, float* vectors, std::size_t stride, float* own) const {
    std::fill(own, own + rows, 0.0f);
    for (std::size_t f = 0; f < fields_.size(); ++f)
        kernels.scoring.embed(f < formed_ ? plan_.number : Number::f32, fields_[f], ids + columns_[f], columns_.size(), rows,
                              vectors + fields_[f].start, stride, own);
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t k = width_; k < padded(width_); ++k) vectors[r * stride + k] = 0;
    if (form_width_) kernels.quadratic.add_forms(vectors, stride, rows, form_width_, panels_.data(), depths_.data(), own);
    kernels.scoring.add_products({fields_.data() + formed_, fields_.size() - formed_}, columns_.data() + formed_, ids, columns_.size(), rows,
                                 vectors, stride, own);
}

std::vector<float> Side::matrix_with(const Side& other) const {
    std::vector<float> matrix(width_ * other.width_);
    for (std::size_t p = 0; p < fields_.size(); ++p)
        for (std::size_t q = 0; q < other.fields_.size(); ++q)
            for (std::size_t i = 0; i < fields_[p].dim; ++i)
                for (std::size_t j = 0; j < other.fields_[q].dim; ++j)
                    matrix[(fields_[p].start + i) * other.width_ + other.fields_[q].start + j] =
                        plan_.entry(*origins_[p], i, *other.origins_[q], j);
    return matrix;
}

}  // namespace fm2
