#include "fm2/scorer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "aligned_buffer.h"
#include "fm2/expect.h"
#include "fm2/network.h"
#include "fm2/plans.h"
#include "fm2/pool.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

// Calls the kernel of a plan for rows that have been checked.
struct PlanScorer {
    const Kernels& kernels;
    const Rows& rows;
    float* logits;

    void operator()(const MatrixPlan& plan) const { kernels.scoring.score_matrices(plan, rows, logits, scratch(plan.scratch_floats())); }
    void operator()(const SumsPlan& plan) const { kernels.scoring.score_sums(plan, rows, logits); }
    void operator()(const FieldAwarePlan& plan) const {
        kernels.scoring.score_field_aware(plan, rows, logits, rows.lists.empty() ? nullptr : scratch(plan.scratch_floats()));
    }
    void operator()(const NetworkPlan& plan) const { score_network(kernels, plan, rows, logits); }

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

// The same for the ids of lists, which all belong to one field. The vectors are explicit because the compiler does not vectorize the loop.
bool any_beyond(std::span<const std::int32_t> given, std::int32_t limit) {
    using Ids [[gnu::vector_size(16)]] = std::uint32_t;
    constexpr std::size_t block = 4;
    const auto size = static_cast<std::uint32_t>(limit);
    Ids wrong{};
    std::size_t i = 0;
    for (; i + block <= given.size(); i += block) {
        Ids ids;
        std::memcpy(&ids, given.data() + i, sizeof ids);
        wrong |= beyond(ids, Ids{} + size);
    }
    for (; i < given.size(); ++i) wrong[0] |= beyond(static_cast<std::uint32_t>(given[i]), size);
    return (wrong[0] | wrong[1] | wrong[2] | wrong[3]) >> 31;
}

// Rows that belong to one thread. Copying others keeps the memory.
struct RowCopy {
    std::vector<std::int32_t> ids;
    std::vector<ListBuffer> buffers;
    std::vector<Lists> lists;
};

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

Rows RowFormat::checked_copy(const Rows& rows, std::size_t begin, std::size_t end) const {
    static thread_local RowCopy copy;
    const std::size_t count = end - begin, columns = fields_.size();
    if (copy.ids.size() < count * columns) copy.ids.resize(count * columns);
    if (count) std::memcpy(copy.ids.data(), rows.row(begin), count * columns * sizeof(std::int32_t));
    for (std::size_t r = 0; r < count; ++r) {
        const std::int32_t* row = copy.ids.data() + r * columns;
        if (!any_beyond(row, limits_)) continue;
        for (std::size_t c = 0; c < columns; ++c)
            if (!lists_[c] && (row[c] < 0 || row[c] >= limits_[c])) throw_bad_id(begin + r, row[c], fields_[c], sizes_[c]);
    }
    if (list_columns_.empty()) return {copy.ids.data(), count, columns, {}};
    if (copy.buffers.size() < columns) copy.buffers.resize(columns);
    copy.lists.assign(columns, {});
    for (const std::size_t column : list_columns_) {
        ListBuffer& buffer = copy.buffers[column];
        copy_lists(rows.lists[column], column, begin, {copy.ids.data(), count * columns}, buffer);
        copy.lists[column] = buffer.view();
        if (!rows.lists[column].weights) copy.lists[column].weights = nullptr;
    }
    return {copy.ids.data(), count, columns, copy.lists};
}

// Copies the list of each row, and sets its number in `ids`, the copied rows. The first of them is row `first_row` of the given ones.
void RowFormat::copy_lists(const Lists& lists, std::size_t column, std::size_t first_row, std::span<std::int32_t> ids,
                           ListBuffer& to) const {
    to.clear();
    for (std::size_t at = column; at < ids.size(); at += fields_.size()) {
        const std::size_t row = first_row + at / fields_.size();
        List list;
        try {
            list = lists[ids[at]];
        } catch (const std::out_of_range& error) {
            throw std::out_of_range("row " + std::to_string(row) + ", field " + std::to_string(fields_[column]) + ": " + error.what());
        }
        to.ids.insert(to.ids.end(), list.ids, list.ids + list.size);
        if (list.weights) to.weights.insert(to.weights.end(), list.weights, list.weights + list.size);
        ids[at] = to.finish();
    }
    if (!any_beyond(to.ids, sizes_[column])) return;
    const std::int32_t size = sizes_[column];
    const auto wrong = std::ranges::find_if(to.ids, [&](std::int32_t id) { return id < 0 || id >= size; });
    const auto list = std::ranges::upper_bound(to.offsets, wrong - to.ids.begin()) - to.offsets.begin() - 1;
    throw_bad_id(first_row + static_cast<std::size_t>(list), *wrong, fields_[column], size);
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
        std::visit(PlanScorer{kernels, format_.checked_copy(rows, begin, end), logits + begin}, plan_);
    });
}

const NetworkPlan* Scorer::onnx_network() const {
    const auto* network = std::get_if<NetworkPlan>(&plan_);
    return network && !network->sparse ? network : nullptr;
}

void Scorer::embed(const Kernels& kernels, const Rows& rows, float* out, float* logits, std::size_t threads) const {
    constexpr std::size_t rows_per_task = 128;
    const auto& network = std::get<NetworkPlan>(plan_);
    format_.check_columns(rows);
    parallel_ranges(rows.count, rows_per_task, threads, [&](std::size_t begin, std::size_t end) {
        const Rows checked = format_.checked_copy(rows, begin, end);
        fm2::embed(kernels, network, checked, out + begin * network.width, network.width, logits + begin);
    });
}

}  // namespace fm2
