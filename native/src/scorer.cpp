#include "fm2/scorer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "aligned_buffer.h"
#include "fm2/expect.h"
#include "fm2/plans.h"
#include "fm2/pool.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

// Calls the kernel of a plan for rows that have been checked.
struct PlanScorer {
    const ScoringKernels& kernels;
    const Rows& rows;
    float* logits;

    void operator()(const MatrixPlan& plan) const { kernels.score_matrices(plan, rows, logits, scratch(plan.scratch_floats())); }
    void operator()(const SumsPlan& plan) const { kernels.score_sums(plan, rows, logits); }
    void operator()(const FieldAwarePlan& plan) const {
        kernels.score_field_aware(plan, rows, logits, rows.lists.empty() ? nullptr : scratch(plan.scratch_floats()));
    }

    static float* scratch(std::size_t floats) {
        static thread_local AlignedBuffer buffer;
        buffer.reserve(floats * sizeof(float));
        return reinterpret_cast<float*>(buffer.data());
    }
};

[[noreturn]] void throw_bad_id(std::size_t row, std::int32_t id, std::size_t field, std::int32_t size) {
    throw std::out_of_range("row " + std::to_string(row) + " has id " + std::to_string(id) + " in field " + std::to_string(field) +
                            "; it must be between 0 and " + std::to_string(size - 1));
}

// Returns a number whose highest bit is set if an id is negative or not below `size`; also for vectors of ids.
template <class Id>
Id beyond(Id id, Id size) {
    return id | (size - 1 - id);
}

bool any_beyond(const std::int32_t* ids, std::span<const std::int32_t> sizes) {
    std::uint32_t wrong = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i)
        wrong |= beyond(static_cast<std::uint32_t>(ids[i]), static_cast<std::uint32_t>(sizes[i]));
    return wrong >> 31;
}

// The same for the ids of a list. Sixteen are checked at a time, whatever the length of the list: the end of a loop over a short list would
// be mispredicted. The vectors are explicit because the compiler does not vectorize the loop.
bool any_beyond(const Lists& lists, const List& list, std::int32_t limit) {
    using Numbers [[gnu::vector_size(16)]] = std::int32_t;
    using Ids [[gnu::vector_size(16)]] = std::uint32_t;
    constexpr std::int32_t block = 16;
    const auto size = static_cast<std::uint32_t>(limit);
    const auto readable = static_cast<std::size_t>(lists.ids.data() + lists.ids.size() - list.ids);
    Ids wrong{};
    std::size_t i = 0;
    for (; i < list.size && i + block <= readable; i += block) {
        const auto left = static_cast<std::int32_t>(std::min(list.size - i, std::size_t{block}));
#pragma GCC unroll 4
        for (std::int32_t k = 0; k < block; k += 4) {
            Ids ids;
            std::memcpy(&ids, list.ids + i + k, sizeof ids);
            const Numbers in_list = Numbers{k, k + 1, k + 2, k + 3} < left;
            wrong |= beyond(ids, Ids{} + size) & reinterpret_cast<const Ids&>(in_list);
        }
    }
    for (; i < list.size; ++i) wrong[0] |= beyond(static_cast<std::uint32_t>(list.ids[i]), size);
    return (wrong[0] | wrong[1] | wrong[2] | wrong[3]) >> 31;
}

std::vector<std::size_t> all_fields(std::size_t count) {
    std::vector<std::size_t> fields(count);
    std::iota(fields.begin(), fields.end(), 0);
    return fields;
}

std::span<const std::uint8_t> read_lists(const ModelFile& file, std::size_t fields) {
    const auto lists = file.numbers<std::uint8_t>("lists", fields);
    if (std::ranges::any_of(lists, [](std::uint8_t list) { return list > 1; })) file.reject("invalid section 'lists'");
    return lists;
}

}  // namespace

RowFormat::RowFormat(std::vector<std::size_t> fields, std::span<const std::int32_t> sizes, std::span<const std::uint8_t> lists)
    : fields_(std::move(fields)) {
    for (const std::size_t field : fields_) {
        if (lists[field]) list_columns_.push_back(sizes_.size());
        sizes_.push_back(sizes[field]);
        lists_.push_back(lists[field]);
        limits_.push_back(lists[field] ? std::numeric_limits<std::int32_t>::max() : sizes[field]);
    }
}

void RowFormat::check_columns(const Rows& rows) const {
    if (list_columns_.empty() && rows.lists.empty()) return;
    expect(rows.lists.empty() || rows.lists.size() == fields_.size(), "expected lists for ", fields_.size(), " fields, got ",
           rows.lists.size());
    bool different = rows.lists.empty();
    for (std::size_t c = 0; c < rows.lists.size(); ++c) different |= static_cast<bool>(rows.lists[c]) != is_list(c);
    for (std::size_t c = 0; different && c < fields_.size(); ++c) {
        if (rows.is_list(c) == is_list(c)) continue;
        expect(!is_list(c), "field ", fields_[c], " is multi-valued, but the rows have no lists for it");
        expect(is_list(c), "field ", fields_[c], " is not multi-valued, but the rows have lists for it");
    }
}

void RowFormat::check(const Rows& rows, std::size_t begin, std::size_t end) const {
    for (std::size_t r = begin; r < end; ++r) {
        const std::int32_t* row = rows.row(r);
        const bool wrong = any_beyond(row, limits_);
        for (std::size_t c = 0; wrong && c < limits_.size(); ++c)
            if (!lists_[c] && (row[c] < 0 || row[c] >= limits_[c])) throw_bad_id(r, row[c], fields_[c], sizes_[c]);
        for (const std::size_t column : list_columns_) {
            const Lists& lists = rows.lists[column];
            if (!lists.contains(row[column]) || any_beyond(lists, lists.at(row[column]), sizes_[column])) throw_bad_list(rows, r, column);
        }
    }
}

void RowFormat::throw_bad_list(const Rows& rows, std::size_t row, std::size_t column) const {
    List list;
    try {
        list = rows.lists[column][rows.row(row)[column]];
    } catch (const std::out_of_range& error) {
        throw std::out_of_range("row " + std::to_string(row) + ", field " + std::to_string(fields_[column]) + ": " + error.what());
    }
    const std::int32_t size = sizes_[column];
    const auto* wrong = std::find_if(list.ids, list.ids + list.size, [&](std::int32_t id) { return id < 0 || id >= size; });
    throw_bad_id(row, *wrong, fields_[column], size);
}

Scorer::Scorer(std::shared_ptr<const ModelFile> file)
    : file_(std::move(file)),
      sizes_(file_->numbers<std::int32_t>("sizes")),
      lists_(read_lists(*file_, sizes_.size())),
      plan_(read_plan(*file_, sizes_, lists_)),
      format_(all_fields(sizes_.size()), sizes_, lists_),
      calibration_(Calibration::read(*file_, sizes_, lists_)) {}

void Scorer::score(const Kernels& kernels, const Rows& rows, float* logits, std::size_t threads) const {
    constexpr std::size_t rows_per_task = 256;
    format_.check_columns(rows);
    parallel_ranges(rows.count, rows_per_task, threads, [&](std::size_t begin, std::size_t end) {
        format_.check(rows, begin, end);
        std::visit(PlanScorer{kernels.scoring, rows_between(rows, begin, end), logits + begin}, plan_);
    });
}

}  // namespace fm2
