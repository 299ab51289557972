#include "fm2/encoder.h"

#include <algorithm>
#include <array>

#include "fm2/pool.h"

namespace fm2 {

void Encoder::set_vocabulary(std::size_t field, std::string_view bytes, std::span<const std::uint64_t> ends) {
    tables_[field] = make_string_index(bytes, ends);
    views_[field] = tables_[field].view();
}

void Encoder::encode(const ArrowReader& table, std::size_t first, std::size_t count, const std::vector<std::size_t>& positions,
                     std::size_t threads, std::int32_t* ids) const {
    Columns columns;
    for (const std::size_t position : positions) columns.push_back(table.column(position));
    encode(columns, first, count, threads, ids);
}

void Encoder::encode(std::string_view text, const TextFormat& format, const std::vector<std::size_t>& positions, bool last,
                     std::size_t threads, EncodedText& out) const {
    out.block.read(text, format, last);
    Columns columns;
    for (const std::size_t position : positions) columns.push_back(out.block.column(position));
    out.ids.resize(out.block.rows() * fields_.size());
    encode(columns, 0, out.block.rows(), threads, out.ids.data());
    for (const BadRow& bad : out.block.bad()) std::fill_n(&out.ids[bad.row * fields_.size()], fields_.size(), 0);
}

void Encoder::encode(const Columns& columns, std::size_t first, std::size_t count, std::size_t threads, std::int32_t* ids) const {
    // The ids of a block stay in the cache while the fields fill them one by one.
    constexpr std::size_t block = 1024;
    parallel_ranges(count, block, threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t field = 0; field < fields_.size(); ++field)
            encode_field(field, *columns[fields_[field].column], first + begin, end - begin, ids + begin * fields_.size());
    });
}

void Encoder::encode_field(std::size_t index, const Column& column, std::size_t first, std::size_t count, std::int32_t* ids) const {
    const Field& field = fields_[index];
    Batch batch;
    std::vector<std::size_t> unreadable;
    std::array<std::int32_t, Batch::capacity> numbers;
    by_batch(count, [&](std::size_t begin, std::size_t size) {
        reader_.read(column, first + begin, size, batch);
        unreadable.clear();
        field.transform.apply(batch, unreadable);
        if (field.hash_bits)
            for (std::size_t i = 0; i < size; ++i) numbers[i] = field.hashed(batch.cells[i]);
        else views_[index].find({batch.cells.data(), size}, numbers.data());
        for (const std::size_t i : unreadable) numbers[i] = StringIndex::absent;
        for (std::size_t i = 0; i < size; ++i) ids[(begin + i) * fields_.size() + index] = numbers[i] + 1;
    });
}

void Encoder::encode(std::span<const std::string_view> cells, std::int32_t* ids) const {
    static thread_local Batch batch;
    static thread_local std::vector<std::size_t> unreadable(1);  // has the capacity from the start
    batch.size = 1;
    for (std::size_t index = 0; index < fields_.size(); ++index) {
        const Field& field = fields_[index];
        batch.cells[0] = reader_.read(cells[field.column]);
        unreadable.clear();
        field.transform.apply(batch, unreadable);
        const std::string_view token = batch.cells[0];
        ids[index] = !unreadable.empty() ? 0 : 1 + (field.hash_bits ? field.hashed(token) : views_[index].find(token));
    }
}

}  // namespace fm2
