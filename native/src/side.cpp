#include "side.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "fm2/expect.h"

namespace fm2 {
namespace {

constexpr std::size_t max_table_floats = 1 << 19;  // 2 MB
constexpr std::size_t max_form_width = 1 << 13;    // a form of 256 MB

}  // namespace

Side::Side(const MatrixPlan& plan, std::span<const std::size_t> fields, std::span<const std::uint8_t> lists)
    : plan_(plan), columns_(fields.size()) {
    std::iota(columns_.begin(), columns_.end(), 0);
    const auto origin = [&](std::size_t column) { return &*std::ranges::find(plan.fields, fields[column], &MatrixField::field); };
    const auto is_list = [&](std::size_t column) { return lists[fields[column]] != 0; };
    std::ranges::stable_sort(columns_, std::greater(),
                             [&](std::size_t column) { return std::pair(is_list(column), origin(column)->size); });
    for (const std::size_t column : columns_) {
        origins_.push_back(origin(column));
        fields_.push_back(*origins_.back());
        fields_.back().offset = width_;
        width_ += fields_.back().dim;
    }
    form_fields_ = fields_.size();
    for (std::size_t floats = 0; form_fields_ && !is_list(columns_[form_fields_ - 1]); --form_fields_) {
        const MatrixField& last = fields_[form_fields_ - 1];
        floats += last.size * (last.offset + last.dim);
        if (floats > max_table_floats) break;
    }
    make_form();
    for (std::size_t index = form_fields_; index < fields_.size(); ++index) make_table(index);
}

// Lays the form out as the kernels of quadratic forms read it; each field interacts with the preceding ones.
void Side::make_form() {
    if (form_fields_ < 2) return;
    form_width_ = form_fields_ < fields_.size() ? fields_[form_fields_].offset : width_;
    expect(form_width_ <= max_form_width, "the large fields of one side have ", form_width_, " dimensions in total; at most ",
           max_form_width, " are supported");
    depths_.assign((form_width_ + panel_columns - 1) / panel_columns, 0);
    panels_.assign(depths_.size() * panel_columns * form_width_, 0);
    for (std::size_t q = 0; q < form_fields_; ++q)
        for (std::size_t j = 0; j < fields_[q].dim; ++j) {
            const std::size_t column = fields_[q].offset + j;
            float* panel = panels_.data() + column / panel_columns * panel_columns * form_width_;
            depths_[column / panel_columns] = fields_[q].offset;
            for (std::size_t p = 0; p < q; ++p)
                for (std::size_t i = 0; i < fields_[p].dim; ++i)
                    panel[(fields_[p].offset + i) * panel_columns + column % panel_columns] = plan_.entry(*origins_[p], i, *origins_[q], j);
        }
}

void Side::make_table(std::size_t index) {
    const MatrixField& origin = *origins_[index];
    MatrixField& field = fields_[index];
    field.cached_layout = RowLayout(Dtype::f32, field.offset, field.dim);
    std::byte* rows = tables_.emplace_back(field.size * field.cached_layout.stride).data();
    std::vector<float> matrix(field.dim * field.offset), embedding(field.dim), product(field.offset);
    for (std::size_t j = 0; j < field.dim; ++j)
        for (std::size_t p = 0; p < index; ++p)
            for (std::size_t i = 0; i < fields_[p].dim; ++i)
                matrix[j * field.offset + fields_[p].offset + i] = plan_.entry(*origins_[p], i, origin, j);
    for (std::size_t id = 0; id < field.size; ++id) {
        const auto narrow_id = static_cast<std::int32_t>(id);
        float linear = 0;
        kernels().scoring.embed(plan_.dtype, origin, {}, &narrow_id, 1, 1, embedding.data(), field.dim, &linear);
        std::ranges::fill(product, 0.0f);
        for (std::size_t j = 0; j < field.dim; ++j)
            for (std::size_t k = 0; k < field.offset; ++k) product[k] += embedding[j] * matrix[j * field.offset + k];
        pack_rows(Dtype::f32, field.cached_layout, 1, product.data(), embedding.data(), &linear, rows + id * field.cached_layout.stride, 1);
    }
    field.cached = field.size;
    field.cached_rows = rows;
}

void Side::gather(const Kernels& kernels, const Rows& rows, float* vectors, std::size_t stride, float* parts) const {
    std::fill(parts, parts + rows.count, 0.0f);
    for (std::size_t f = 0; f < fields_.size(); ++f)
        kernels.scoring.embed(f < form_fields_ ? plan_.dtype : Dtype::f32, fields_[f],
                              rows.lists.empty() ? Lists{} : rows.lists[columns_[f]], rows.ids + columns_[f], rows.fields, rows.count,
                              vectors + fields_[f].offset, stride, parts);
    for (std::size_t r = 0; r < rows.count; ++r)
        for (std::size_t k = width_; k < padded(width_); ++k) vectors[r * stride + k] = 0;
    if (form_width_) kernels.quadratic.add_forms(vectors, stride, rows.count, form_width_, panels_.data(), depths_.data(), parts);
    kernels.scoring.add_products(std::span(fields_).subspan(form_fields_), columns_.data() + form_fields_, rows.ids, rows.fields,
                                 rows.count, vectors, stride, parts);
}

std::vector<float> Side::matrix_with(const Side& other) const {
    std::vector<float> matrix(width_ * other.width_);
    for (std::size_t p = 0; p < fields_.size(); ++p)
        for (std::size_t q = 0; q < other.fields_.size(); ++q)
            for (std::size_t i = 0; i < fields_[p].dim; ++i)
                for (std::size_t j = 0; j < other.fields_[q].dim; ++j)
                    matrix[(fields_[p].offset + i) * other.width_ + other.fields_[q].offset + j] =
                        plan_.entry(*origins_[p], i, *other.origins_[q], j);
    return matrix;
}

}  // namespace fm2
