#include "fm2/minibatch.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>

#include "fm2/expect.h"
#include "fm2/hash.h"
#include "fm2/pool.h"

namespace fm2 {
namespace {

constexpr std::size_t block = 16;         // rows whose ids fill one cache line per field
constexpr std::size_t rows_per_task = 128;  // a multiple of the block
constexpr std::size_t few_rows = 512;       // below this, waking a second thread costs more than it saves
constexpr std::size_t ahead = 12;         // prefetch distance in rows: 3 cache lines each, of about 24 in flight

constexpr std::int64_t max_values = std::int64_t{1} << 28;  // of a field in a batch

[[noreturn]] void throw_bad_row(std::int64_t row, std::size_t rows) {
    throw std::out_of_range("load: row " + std::to_string(row) + " does not exist; there are " + std::to_string(rows) + " rows");
}

[[noreturn]] void throw_bad_id(std::size_t row, std::size_t field, std::int32_t id, std::int32_t size) {
    throw std::out_of_range("load: row " + std::to_string(row) + " of the batch: the id of field " + std::to_string(field) +
                            " must be between 0 and " + std::to_string(size - 1) + ", got " + std::to_string(id));
}

[[noreturn]] void throw_bad_list(const std::string& fault, std::size_t row, std::size_t field) {
    throw std::out_of_range("load: row " + std::to_string(row) + " of the batch: field " + std::to_string(field) + ": " + fault);
}

// The rows of a dataset that make up a batch.
template <class Index>
struct Source {
    std::int64_t row(std::size_t i) const { return order ? static_cast<std::int64_t>(order[i]) : static_cast<std::int64_t>(i); }
    const std::int32_t* at(std::int64_t row) const { return rows.row(static_cast<std::size_t>(row)); }

    const Rows& rows;
    const Index* order;  // or null
    std::size_t count;
};

// Transposes rows [begin, end) of the batch into one column per field.
template <class Index>
void copy_rows(const Source<Index>& source, std::size_t begin, std::size_t end, std::int32_t* columns, std::size_t stride) {
    for (std::size_t i = begin; i < end; ++i) {
        const std::int32_t* next = source.at(source.row(std::min(i + ahead, source.count - 1)));
        for (std::size_t f = 0; f < source.rows.fields; f += 16) __builtin_prefetch(next + f);
        const std::int64_t row = source.row(i);
        if (static_cast<std::uint64_t>(row) >= source.rows.count) throw_bad_row(row, source.rows.count);
        const std::int32_t* from = source.at(row);
        std::int32_t* to = columns + i;
#pragma GCC unroll 8
        for (std::size_t f = 0; f < source.rows.fields; ++f) to[f * stride] = from[f];
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

Minibatch::Minibatch(std::vector<std::int32_t> sizes, bool compacts) : sizes_(std::move(sizes)) {
    expect(!sizes_.empty(), "minibatch: at least one field is required");
    for (const std::int32_t size : sizes_) expect(size >= 1, "minibatch: every field needs at least one feature, got ", size);
    if (compacts) full_sizes_ = sizes_;
    else index();
    by_size_.resize(sizes_.size());
    std::iota(by_size_.begin(), by_size_.end(), 0);
    std::ranges::stable_sort(by_size_, std::greater(), [&](std::size_t field) { return sizes_[field]; });
}

void Minibatch::index() {
    std::int64_t features = 0;
    first_.clear();
    for (const std::int32_t size : sizes_) {
        first_.push_back(features);
        features += size;
    }
    if (first_row_.size() < static_cast<std::size_t>(features)) first_row_.resize(static_cast<std::size_t>(features));
}

std::uint32_t ValueDropout::hash(std::size_t row, std::size_t field, std::size_t position) const {
    const std::uint64_t key = mix(mix(seed ^ 0x9e3779b97f4a7c15u, 0xd1342543de82ef95u) ^ step, 0xa0761d6478bd642fu);
    const std::uint64_t number = rows.empty() ? row : rows[row];
    const std::uint64_t value = mix(mix(key ^ number, 0xe7037ed1a0b428dbu) ^ (field << 32 | position), 0xa0761d6478bd642fu);
    // Without another mix, neighbors would be dropped together too rarely.
    return static_cast<std::uint32_t>(mix(value ^ key, 0xd1342543de82ef95u) >> 32);
}

float ValueDropout::factor(std::size_t row, std::size_t field, std::size_t position) const {
    const auto threshold = static_cast<std::uint64_t>(static_cast<double>(probability) * 4294967296.0);
    return hash(row, field, position) < threshold ? 0 : 1 / (1 - probability);
}

bool ValueDropout::hides(std::size_t row, std::size_t field, std::uint16_t probability_of_feature) const {
    return hash(row, field, 0xffffffffu) >> 16 < probability_of_feature;
}

template <class Index>
void Minibatch::load(const Rows& rows, const Index* order, std::size_t count, std::size_t threads, const ValueDropout& dropout) {
    const std::size_t n = fields();
    expect(rows.fields == n, "load: ids must have ", n, " columns, got ", rows.fields);
    expect(count <= std::size_t{1} << 24, "load: a batch can have at most 2^24 rows, got ", count);
    expect(dropout.probability >= 0 && dropout.probability < 1, "load: the dropout of values must be at least 0 and below 1, got ",
           dropout.probability);
    expect(dropout.rows.empty() || dropout.rows.size() == count, "load: dropout has numbers for ", dropout.rows.size(), " of ", count,
           " rows");
    count_ = 0;
    if (!full_sizes_.empty()) sizes_ = full_sizes_;
    compacted_ = false;
    // The extra cache line avoids strides that are powers of two, for which all fields would share a few cache sets.
    stride_ = (count + block - 1) / block * block + padding;
    if (ids_.size() < n * stride_) ids_.resize(n * stride_);
    choose_lists(rows, count);
    if (dropout.hidden) check_hidden(*dropout.hidden);
    if (count < few_rows) threads = 1;
    parallel_ranges(count, rows_per_task, threads, [&](std::size_t begin, std::size_t end) {
        copy_rows(Source<Index>{rows, order, count}, begin, end, ids_.data(), stride_);
        if (has_lists()) find_lists(rows, begin, end);
        for (std::size_t f = 0; f < n; ++f) {
            std::int32_t* column = ids_.data() + f * stride_;
            if (end == count) std::fill(column + end, column + stride_, 0);
            for (std::size_t i = begin; i < end; i += block) check_ids(column + i, i, f, sizes_[f]);
        }
        if (dropout.hidden) hide(begin, end, dropout);
    });
    if (has_lists()) {
        add_offsets(count);
        parallel_ranges(count, rows_per_task, threads, [&](std::size_t begin, std::size_t end) { copy_lists(rows, begin, end, dropout); });
    }
    count_ = count;
}

template void Minibatch::load(const Rows&, const std::int32_t*, std::size_t, std::size_t, const ValueDropout&);
template void Minibatch::load(const Rows&, const std::int64_t*, std::size_t, std::size_t, const ValueDropout&);

void Minibatch::check_hidden(const HiddenFeatures& hidden) const {
    expect(hidden.probabilities.size() == fields() && hidden.parts.size() == fields(), "load: expected hidden features of ", fields(),
           " fields, got ", hidden.probabilities.size());
    for (std::size_t f = 0; f < fields(); ++f) {
        const std::size_t size = hidden.probabilities[f].size();
        expect(!size || size == static_cast<std::size_t>(sizes_[f]), "load: field ", f, " has ", sizes_[f], " features, but ", size,
               " probabilities of hiding them");
        expect((!size && hidden.parts[f].empty()) || !is_list(f), "load: field ", f, " has lists, whose features cannot be hidden");
        for (const std::size_t part : hidden.parts[f]) expect(part < fields(), "load: field ", part, " does not exist");
    }
}

void Minibatch::hide(std::size_t begin, std::size_t end, const ValueDropout& dropout) {
    const auto ids_of = [&](std::size_t field) { return ids_.data() + field * stride_; };
    for (std::size_t f = 0; f < fields(); ++f) {
        const std::vector<std::uint16_t>& probabilities = dropout.hidden->probabilities[f];
        if (probabilities.empty()) continue;
        std::int32_t* ids = ids_of(f);
        for (std::size_t i = begin; i < end; ++i)
            if (dropout.hides(i, f, probabilities[static_cast<std::size_t>(ids[i])])) ids[i] = 0;
    }
    for (std::size_t f = 0; f < fields(); ++f)
        for (const std::size_t part : dropout.hidden->parts[f])
            for (std::size_t i = begin; i < end; ++i)
                if (ids_of(part)[i] == 0) ids_of(f)[i] = 0;
}

// Finds out which fields have lists, and reserves memory for one list per row.
void Minibatch::choose_lists(const Rows& rows, std::size_t count) {
    list_fields_.clear();
    if (rows.lists.empty()) return;
    expect(rows.lists.size() == fields(), "load: expected lists for ", fields(), " fields, got ", rows.lists.size());
    is_list_.assign(fields(), 0);
    values_.resize(fields());
    for (std::size_t f = 0; f < fields(); ++f) {
        if (!rows.is_list(f)) continue;
        is_list_[f] = 1;
        list_fields_.push_back(f);
        if (values_[f].begins.size() < count) values_[f].begins.resize(count);
        if (values_[f].offsets.size() < count + 1) values_[f].offsets.resize(count + 1);
    }
}

// Writes where the lists of rows [begin, end) begin, and how long they are. The numbers of the lists become zeros, which are valid ids.
void Minibatch::find_lists(const Rows& rows, std::size_t begin, std::size_t end) {
    for (const std::size_t f : list_fields_) {
        const Lists& lists = rows.lists[f];
        std::int32_t* numbers = ids_.data() + f * stride_;
        Values& values = values_[f];
        for (std::size_t i = begin; i < end; ++i) {
            __builtin_prefetch(lists.offsets.data() + numbers[std::min(i + ahead, end - 1)]);
            const std::int32_t number = numbers[i];
            const auto index = static_cast<std::size_t>(number);
            if (number < 0 || index + 1 >= lists.offsets.size()) throw_bad_list("there is no list " + std::to_string(number), i, f);
            const std::int64_t first = lists.offsets[index], last = lists.offsets[index + 1];
            if (first < 0 || first > last || static_cast<std::size_t>(last) > lists.ids.size())
                throw_bad_list("the offsets of list " + std::to_string(number) + " are out of range", i, f);
            if (last - first > max_values) throw_bad_list("list " + std::to_string(number) + " has too many values", i, f);
            values.begins[i] = first;
            values.offsets[i + 1] = static_cast<std::int32_t>(last - first);
        }
        std::fill(numbers + begin, numbers + end, 0);
    }
}

// Turns lengths into offsets, and reserves memory for the values.
void Minibatch::add_offsets(std::size_t count) {
    for (const std::size_t f : list_fields_) {
        Values& values = values_[f];
        std::int64_t total = 0;
        values.offsets[0] = 0;
        for (std::size_t i = 1; i <= count; ++i) {
            total += values.offsets[i];
            if (total > max_values)
                throw_bad_list("a batch can have at most " + std::to_string(max_values) + " values; use smaller batches or lists", i - 1,
                               f);
            values.offsets[i] = static_cast<std::int32_t>(total);
        }
        const auto size = static_cast<std::size_t>(total);
        if (values.ids.size() < size + padding) values.ids.resize(size + padding);
        if (values.weights.size() < size + padding) values.weights.resize(size + padding);
        std::fill_n(values.ids.begin() + total, padding, 0);
    }
}

void Minibatch::copy_lists(const Rows& rows, std::size_t begin, std::size_t end, const ValueDropout& dropout) {
    for (const std::size_t f : list_fields_) {
        const Lists& lists = rows.lists[f];
        Values& values = values_[f];
        const bool drops = dropout.probability > 0 && std::ranges::find(dropout.numbers, f) == dropout.numbers.end();
        for (std::size_t i = begin; i < end; ++i) {
            const std::int64_t next = values.begins[std::min(i + ahead, end - 1)], first = values.begins[i];
            __builtin_prefetch(lists.ids.data() + next);
            if (lists.weights) __builtin_prefetch(lists.weights + next);
            const std::int32_t at = values.offsets[i], size = values.offsets[i + 1] - at;
            std::int32_t* ids = values.ids.data() + at;
            float* weights = values.weights.data() + at;
            float zero = 0;  // NaN if a weight is not finite
            for (std::int32_t k = 0; k < size; ++k) {
                ids[k] = lists.ids[static_cast<std::size_t>(first + k)];
                if (ids[k] < 0 || ids[k] >= sizes_[f]) throw_bad_id(i, f, ids[k], sizes_[f]);
                weights[k] = lists.weights ? lists.weights[first + k] : 1;
                zero += 0 * weights[k];
            }
            if (zero != 0) throw_bad_list("a weight is not a finite number", i, f);
            if (drops)
                for (std::int32_t k = 0; k < size; ++k) weights[k] *= dropout.factor(i, f, static_cast<std::size_t>(k));
        }
    }
}

namespace {

// The values [begin, begin + count) of several fields, one field after the other.
struct Numbered {
    const std::int32_t* ids;
    std::size_t begin, count;
};

[[gnu::always_inline]] inline void write_first(const Numbered& values, std::int32_t* first) {
    for (std::size_t i = values.count; i-- > 0;) first[values.ids[i]] = static_cast<std::int32_t>(values.begin + i);
}

[[gnu::always_inline]] inline std::size_t write_slots(const Numbered& values, const std::int32_t* first_of, std::size_t count,
                                                      std::int32_t* features, std::int32_t* slots) {
    for (std::size_t i = 0; i < values.count; ++i) {
        const auto first = static_cast<std::size_t>(first_of[values.ids[i]]);
        features[count] = values.ids[i];
        slots[values.begin + i] = static_cast<std::int32_t>(count);
        slots[values.begin + i] = slots[first];
        count += first == values.begin + i;
    }
    return count;
}

}  // namespace

// Values write their number to their feature's entry from last to first, so the first value with a feature remains there. This needs no
// unpredictable branches, and no clearing between batches.
std::size_t Minibatch::find_distinct(std::span<const std::size_t> fields, std::int32_t* features, std::int32_t* slots) {
    if (compacted_ && fields.size() == 1 && is_alone_[fields[0]]) {  // ids are numbers in this order already
        const std::size_t values = count_values(fields[0]);
        const auto count = values ? static_cast<std::size_t>(sizes_[fields[0]]) : 0;
        std::iota(features, features + count, 0);
        std::copy_n(value_ids(fields[0]), values, slots);
        return count;
    }
    std::int32_t* first = first_row_.data() + first_[fields[0]];
    if (fields.size() == 1) {  // the usual case, compiled with the constant 0
        const Numbered values{value_ids(fields[0]), 0, count_values(fields[0])};
        write_first(values, first);
        return write_slots(values, first, 0, features, slots);
    }
    std::vector<Numbered> parts;
    std::size_t begin = 0, count = 0;
    for (const std::size_t field : fields) {
        parts.push_back({value_ids(field), begin, count_values(field)});
        begin += parts.back().count;
    }
    for (std::size_t part = parts.size(); part-- > 0;) write_first(parts[part], first);
    for (const Numbered& part : parts) count = write_slots(part, first, count, features, slots);
    return count;
}

}  // namespace fm2
