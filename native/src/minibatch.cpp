#include "fm2/minibatch.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>

#include "fm2/expect.h"
#include "fm2/pool.h"

namespace fm2 {
namespace {

constexpr std::size_t block = 16;         // rows whose ids fill one cache line per field
constexpr std::size_t rows_per_task = 128;  // a multiple of the block
constexpr std::size_t few_rows = 512;       // below this, waking a second thread costs more than it saves
constexpr std::size_t ahead = 12;         // prefetch distance in rows: 3 cache lines each, of about 24 in flight

[[noreturn]] void throw_bad_row(std::int64_t row, std::size_t rows) {
    throw std::out_of_range("load: row " + std::to_string(row) + " does not exist; there are " + std::to_string(rows) + " rows");
}

[[noreturn]] void throw_bad_id(std::size_t row, std::size_t field, std::int32_t id, std::int32_t size) {
    throw std::out_of_range("load: row " + std::to_string(row) + " of the batch: the id of field " + std::to_string(field) +
                            " must be between 0 and " + std::to_string(size - 1) + ", got " + std::to_string(id));
}

// The rows of a dataset that make up a batch.
template <class Index>
struct Source {
    std::int64_t row(std::size_t i) const { return order ? static_cast<std::int64_t>(order[i]) : static_cast<std::int64_t>(i); }
    const std::int32_t* at(std::int64_t row) const { return ids + static_cast<std::size_t>(row) * fields; }

    const std::int32_t* ids;
    std::size_t rows, fields;
    const Index* order;  // or null
    std::size_t count;
};

// Transposes rows [begin, end) of the batch into one column per field.
template <class Index>
void copy_rows(const Source<Index>& source, std::size_t begin, std::size_t end, std::int32_t* columns, std::size_t stride) {
    for (std::size_t i = begin; i < end; ++i) {
        const std::int32_t* next = source.at(source.row(std::min(i + ahead, source.count - 1)));
        for (std::size_t f = 0; f < source.fields; f += 16) __builtin_prefetch(next + f);
        const std::int64_t row = source.row(i);
        if (static_cast<std::uint64_t>(row) >= source.rows) throw_bad_row(row, source.rows);
        const std::int32_t* from = source.at(row);
        std::int32_t* to = columns + i;
#pragma GCC unroll 8
        for (std::size_t f = 0; f < source.fields; ++f) to[f * stride] = from[f];
    }
}

// Checks a block of ids without branches: an id below 0 sets the sign bit of `id`, one above the last that of `last - id`.
void check_ids(const std::int32_t* ids, std::size_t row, std::size_t field, std::int32_t size) {
    const std::uint32_t last = static_cast<std::uint32_t>(size) - 1;
    std::uint32_t signs = 0;
    for (std::size_t i = 0; i < block; ++i) {
        const auto id = static_cast<std::uint32_t>(ids[i]);
        signs |= id | (last - id);
    }
    if (!(signs >> 31)) return;
    for (std::size_t i = 0; i < block; ++i)
        if (ids[i] < 0 || ids[i] >= size) throw_bad_id(row + i, field, ids[i], size);
}

}  // namespace

Minibatch::Minibatch(std::vector<std::int32_t> sizes) : sizes_(std::move(sizes)) {
    expect(!sizes_.empty(), "minibatch: at least one field is required");
    std::int64_t features = 0;
    for (const std::int32_t size : sizes_) {
        expect(size >= 1, "minibatch: every field needs at least one feature, got ", size);
        first_.push_back(features);
        features += size;
    }
    first_row_.resize(static_cast<std::size_t>(features));
    by_size_.resize(sizes_.size());
    std::iota(by_size_.begin(), by_size_.end(), 0);
    std::ranges::stable_sort(by_size_, std::greater(), [&](std::size_t field) { return sizes_[field]; });
}

template <class Index>
void Minibatch::load(const std::int32_t* ids, std::size_t rows, const Index* order, std::size_t count, std::size_t threads) {
    const std::size_t n = fields();
    expect(count <= std::size_t{1} << 24, "load: a batch can have at most 2^24 rows, got ", count);
    count_ = 0;
    // The extra cache line avoids strides that are powers of two, for which all fields would share a few cache sets.
    stride_ = (count + block - 1) / block * block + padding;
    if (ids_.size() < n * stride_) ids_.resize(n * stride_);
    parallel_ranges(count, rows_per_task, count < few_rows ? 1 : threads, [&](std::size_t begin, std::size_t end) {
        copy_rows(Source<Index>{ids, rows, n, order, count}, begin, end, ids_.data(), stride_);
        for (std::size_t f = 0; f < n; ++f) {
            std::int32_t* column = ids_.data() + f * stride_;
            if (end == count) std::fill(column + end, column + stride_, 0);
            for (std::size_t i = begin; i < end; i += block) check_ids(column + i, i, f, sizes_[f]);
        }
    });
    count_ = count;
}

template void Minibatch::load(const std::int32_t*, std::size_t, const std::int32_t*, std::size_t, std::size_t);
template void Minibatch::load(const std::int32_t*, std::size_t, const std::int64_t*, std::size_t, std::size_t);

// Rows write their number to their feature's entry from last to first, so the first row with a feature remains there. This needs no
// unpredictable branches, and no clearing between batches.
std::size_t Minibatch::find_distinct(std::size_t field, std::int32_t* features, std::int32_t* slots) {
    const std::int32_t* id = ids(field);
    std::int32_t* first_row = first_row_.data() + first_[field];
    for (std::size_t i = count_; i-- > 0;) first_row[id[i]] = static_cast<std::int32_t>(i);
    std::size_t count = 0;
    for (std::size_t i = 0; i < count_; ++i) {
        const auto first = static_cast<std::size_t>(first_row[id[i]]);
        features[count] = id[i];
        slots[i] = static_cast<std::int32_t>(count);
        slots[i] = slots[first];
        count += first == i;
    }
    return count;
}

}  // namespace fm2
