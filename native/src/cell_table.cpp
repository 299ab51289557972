#include "fm2/cell_table.h"

#include <algorithm>

namespace fm2 {

class CellTable::View : public Column {
public:
    View(const CellTable& table, std::size_t column) : table_(&table), column_(column) {}

    void read(std::size_t first, std::size_t count, Batch& batch) const override {
        batch.size = count;
        for (std::size_t i = 0; i < count; ++i) batch.cells[i] = table_->cell(column_, first + i).text;
    }

    bool read_list(std::size_t row, const ListFormat& format, ListCell& cell) const override {
        const std::int32_t number = table_->cell(column_, row).list;
        if (number < 0) return false;
        cell.clear();
        const ItemRange& list = table_->lists_[static_cast<std::size_t>(number)];
        const auto [first, last] = cell.keep(list.size, format);
        for (std::size_t i = first; i < last; ++i) {
            const std::string_view item = table_->items[list.first + (list.weighted ? 2 * i : i)];
            if (list.weighted) cell.add_weight(item, table_->items[list.first + 2 * i + 1]);
            cell.values.push_back(!list.weighted && format.weights_in_cell() ? cell.add_weight_of(item) : item);
        }
        return true;
    }

private:
    const CellTable* table_;
    std::size_t column_;
};

void CellTable::start(std::size_t columns) {
    rows = 0;
    cells.clear();
    items.clear();
    lists_.clear();
    listed_ = 0;
    arena.clear();
    places_.assign(columns, {0, nowhere});
}

std::int32_t CellTable::finish_list(bool weighted) {
    const std::size_t count = items.size() - listed_;
    lists_.push_back({listed_, weighted ? count / 2 : count, weighted});
    listed_ = items.size();
    return static_cast<std::int32_t>(lists_.size()) - 1;
}

const Columns& CellTable::views() {
    while (views_.size() < columns()) views_.push_back(std::make_unique<View>(*this, views_.size()));
    return views_;
}

void CellTable::encode(const CompiledModel& model, RowBuffer& out, std::size_t threads) {
    constexpr std::size_t few_rows = 16;  // from here on, looking up one column after the other is faster
    out.start(model.scorer, rows);
    if (!has_lists() && rows < few_rows) return encode_by_row(model, out);
    if (rows) model.encoder.encoder().encode(views(), 0, rows, threads, out.row(0), out.lists());
}

void CellTable::encode(const CompiledModel& model, RowBuffer& common, std::span<const std::uint8_t> selected, RowBuffer& out,
                       std::size_t threads) {
    const std::size_t fields = model.scorer.fields();
    out.start(model.scorer, rows);
    for (std::size_t r = 0; r < rows; ++r) std::copy_n(common.row(0), fields, out.row(r));
    for (const std::size_t f : model.scorer.format().list_columns())
        if (!selected[f]) out.lists()[f] = common.lists()[f];
    if (rows) model.encoder.encoder().encode(views(), 0, rows, threads, out.row(0), out.lists(), selected);
}

void CellTable::encode_by_row(const CompiledModel& model, RowBuffer& out) {
    row_.resize(columns());
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < columns(); ++c) row_[c] = cell(c, r).text;
        model.encoder.encoder().encode(row_, out.row(r), out.lists());
    }
}

}  // namespace fm2
