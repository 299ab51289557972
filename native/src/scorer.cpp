#include "fm2/scorer.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "fm2/layout.h"
#include "fm2/poly2.h"
#include "fm2/pool.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

constexpr std::size_t max_fields = 1 << 16, max_rank = 1 << 16, max_columns = 1 << 16;

// The section "plan": what the other sections mean.
struct Head {
    std::int64_t form, number, fields, dim, hash_bits, diagonal;
};
enum Form : std::int64_t { prefixes, squares, partners };

// Floats as cache lines have them: eight at a time, none is read from two lines.
struct alignas(64) Line {
    float numbers[16];
};

// Hands out the parts of a section one after the other, each from a multiple of 64 bytes on; all of it has to be used up.
class Parts {
public:
    Parts(const ModelFile& file, std::string_view name) : file_(file), bytes_(file.bytes(name)) {}

    const std::byte* take(std::size_t count, std::size_t stride) {
        const std::size_t room = bytes_.size() - at_;
        if (stride && count > room / stride) file_.refuse("its rows are cut off");
        const std::byte* found = bytes_.data() + at_;
        at_ = std::min(bytes_.size(), (at_ + count * stride + ModelFile::alignment - 1) / ModelFile::alignment * ModelFile::alignment);
        return found;
    }
    void finish() const {
        if (at_ != bytes_.size()) file_.refuse("it has more rows than it should");
    }

private:
    const ModelFile& file_;
    std::span<const std::byte> bytes_;
    std::size_t at_ = 0;
};

Head read_head(const ModelFile& file) {
    const auto values = file.numbers<std::int64_t>("plan", sizeof(Head) / sizeof(std::int64_t));
    const Head head{values[0], values[1], values[2], values[3], values[4], values[5]};
    const auto within = [](std::int64_t value, std::int64_t most) { return value >= 0 && value <= most; };
    if (!within(head.form, partners) || !within(head.number, 2) || !within(head.fields, max_fields) || !within(head.dim, max_rank) ||
        !within(head.hash_bits, Poly2::max_hash_bits) || !within(head.diagonal, 1))
        file.refuse("its plan is not one of those that there are");
    return head;
}

// Adds the stretches of the field at a place, from where the section "stretches" begins with them: rows of place, begin and length.
// Gives the sum of their lengths.
std::size_t take_stretches(const ModelFile& file, std::span<const std::int32_t>& rows, std::size_t place, std::size_t start,
                           std::vector<Stretch>& stretches) {
    std::int64_t end = 0, sum = 0;
    for (; !rows.empty() && static_cast<std::size_t>(rows[0]) == place; rows = rows.subspan(3)) {
        const std::int64_t begin = rows[1], length = rows[2];
        if (begin < end || length < 8 || length % 8 || begin + length >= static_cast<std::int64_t>(start) + 8)
            file.refuse("a field meets what does not stand before it");
        end = begin + length;
        sum += length;
        stretches.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(length)});
    }
    return static_cast<std::size_t>(sum);
}

PrefixPlan read_prefixes(const ModelFile& file, const Head& head, std::span<const std::int32_t> sizes, float bias) {
    const auto n = sizes.size();
    const auto order = file.numbers<std::int32_t>("order", n), dims = file.numbers<std::int32_t>("dims", n),
               cached = file.numbers<std::int32_t>("cached", n);
    const auto number = static_cast<Number>(head.number);
    auto stretches = file.numbers<std::int32_t>("stretches");
    if (stretches.size() % 3) file.refuse("a field meets what does not stand before it");
    PrefixPlan plan{{}, {}, n, 0, number, head.diagonal != 0, bias};
    Parts rows(file, "rows"), matrices(file, "matrix");
    std::vector<bool> seen(n);
    for (std::size_t p = 0; p < n; ++p) {
        const auto field = static_cast<std::size_t>(order[p]);
        if (order[p] < 0 || field >= n || seen[field]) file.refuse("its order of the fields is none");
        seen[field] = true;
        if (dims[p] < 1 || dims[p] > Layout::max_dim || plan.width + static_cast<std::size_t>(dims[p]) > max_columns)
            file.refuse("a dimension is " + std::to_string(dims[p]));
        if (head.diagonal && dims[p] != dims[0]) file.refuse("its dimensions are not equal");
        if (cached[p] < 0 || cached[p] > sizes[field]) file.refuse("a field has more cached features than features");
        const auto dim = static_cast<std::size_t>(dims[p]), size = static_cast<std::size_t>(sizes[field]);
        const auto first = static_cast<std::uint32_t>(plan.stretches.size());
        const std::size_t products = take_stretches(file, stretches, p, plan.width, plan.stretches);
        const auto meets = static_cast<std::uint32_t>(plan.stretches.size()) - first;
        PrefixField found{field, static_cast<std::size_t>(cached[p]), dim, plan.width, first, meets, RowLayout(number, products, dim), nullptr,
                          RowLayout(number, 0, dim), nullptr, nullptr, size};
        found.whole_rows = rows.take(found.cached, found.whole.stride);
        found.rest_rows = rows.take(size - found.cached, found.rest.stride);
        found.matrix = reinterpret_cast<const float*>(matrices.take(head.diagonal ? 1 : dim, products * sizeof(float)));
        plan.fields.push_back(found);
        plan.width += dim;
    }
    if (!stretches.empty()) file.refuse("a field meets what does not stand before it");
    rows.finish();
    matrices.finish();
    return plan;
}

std::vector<SquaresField> read_fields(const ModelFile& file, std::span<const std::int32_t> sizes, const RowLayout& layout) {
    Parts rows(file, "rows");
    std::vector<SquaresField> fields;
    for (const std::int32_t size : sizes) fields.push_back({static_cast<std::size_t>(size), rows.take(static_cast<std::size_t>(size), layout.stride)});
    rows.finish();
    return fields;
}

SquaresPlan read_squares(const ModelFile& file, const Head& head, std::span<const std::int32_t> sizes, float bias) {
    const auto number = static_cast<Number>(head.number);
    const auto rank = static_cast<std::size_t>(head.dim);
    const RowLayout layout(number, rank, 0);
    const auto signs = file.numbers<float>("signs", padded(rank));
    const float* pairs = head.hash_bits ? file.numbers<float>("pairs", std::size_t{1} << head.hash_bits).data() : nullptr;
    return {read_fields(file, sizes, layout), layout, rank, number, signs.data(), pairs, static_cast<std::int32_t>(head.hash_bits), bias};
}

PartnersPlan read_partners(const ModelFile& file, const Head& head, std::span<const std::int32_t> sizes, float bias) {
    const auto number = static_cast<Number>(head.number);
    const auto dim = static_cast<std::size_t>(head.dim);
    if (!dim) file.refuse("a dimension is 0");
    const RowLayout layout(number, 0, (sizes.size() - 1) * dim);
    return {read_fields(file, sizes, layout), layout, dim, number, bias};
}

Scorer::Plan read_plan(const ModelFile& file, std::span<const std::int32_t> sizes) {
    const Head head = read_head(file);
    if (sizes.empty() || static_cast<std::size_t>(head.fields) != sizes.size()) file.refuse("it has another number of fields than sizes");
    for (const std::int32_t size : sizes)
        if (size < 1) file.refuse("a field has no feature");
    const float bias = file.numbers<float>("bias", 1)[0];
    if (head.form == prefixes) return read_prefixes(file, head, sizes, bias);
    if (head.form == squares) return read_squares(file, head, sizes, bias);
    return read_partners(file, head, sizes, bias);
}

}  // namespace

Scorer::Scorer(std::shared_ptr<const ModelFile> file)
    : file_(std::move(file)), sizes_(file_->numbers<std::int32_t>("sizes")), plan_(read_plan(*file_, sizes_)) {}

void check_ids(std::span<const std::int32_t> sizes, std::span<const std::size_t> fields, const std::int32_t* ids, std::size_t first, std::size_t rows) {
    for (std::size_t r = first; r < first + rows; ++r) {
        const std::int32_t* row = ids + r * sizes.size();
        std::uint32_t wrong = 0;  // as wide as an id, so that several are compared at once
        for (std::size_t f = 0; f < sizes.size(); ++f) wrong |= static_cast<std::uint32_t>(row[f]) >= static_cast<std::uint32_t>(sizes[f]);
        for (std::size_t f = 0; wrong && f < sizes.size(); ++f)
            if (row[f] < 0 || row[f] >= sizes[f])
                throw std::out_of_range("row " + std::to_string(r) + " has the id " + std::to_string(row[f]) + " in field " +
                                        std::to_string(fields.empty() ? f : fields[f]) + ", whose ids go from 0 to " + std::to_string(sizes[f] - 1));
    }
}

void Scorer::score(const Kernels& kernels, const std::int32_t* ids, std::size_t rows, float* logits, std::size_t threads) const {
    constexpr std::size_t rows_a_task = 256;
    const auto score_some = [&](std::size_t begin, std::size_t some) {
        check_ids(sizes_, {}, ids, begin, some);
        const std::int32_t* from = ids + begin * fields();
        if (const auto* plan = std::get_if<PrefixPlan>(&plan_)) {
            static thread_local std::vector<Line> room;
            if (room.size() * std::size(Line{}.numbers) < plan->room()) room.resize(plan->room() / std::size(Line{}.numbers) + 1);
            kernels.scoring.score_prefixes(*plan, from, some, logits + begin, room[0].numbers);
        } else if (const auto* plan = std::get_if<SquaresPlan>(&plan_)) {
            kernels.scoring.score_squares(*plan, from, some, logits + begin);
        } else {
            kernels.scoring.score_partners(std::get<PartnersPlan>(plan_), from, some, logits + begin);
        }
    };
    if (rows <= rows_a_task) return score_some(0, rows);
    parallel_for((rows + rows_a_task - 1) / rows_a_task, threads,
                 [&](std::size_t task) { score_some(task * rows_a_task, std::min(rows_a_task, rows - task * rows_a_task)); });
}

float probability(float logit) { return static_cast<float>(1 / (1 + std::exp(-double{logit}))); }

}  // namespace fm2
