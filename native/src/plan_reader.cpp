#include <algorithm>
#include <string>

#include "fm2/embedding.h"
#include "fm2/model_file.h"
#include "fm2/plans.h"
#include "fm2/poly2.h"

namespace fm2 {
namespace {

constexpr std::size_t max_fields = 1 << 16, max_rank = 1 << 16, max_columns = 1 << 16, max_network_columns = 1 << 20;

// The section "plan": the kind of plan, and the numbers needed to read the other sections.
enum Kind : std::int64_t { field_matrices, sums, field_aware, network };
struct Head {
    std::int64_t kind, dtype, fields, dim, hash_bits, diagonal;
};

Head read_head(const ModelFile& file) {
    const auto values = file.numbers<std::int64_t>("plan", sizeof(Head) / sizeof(std::int64_t));
    const Head head{values[0], values[1], values[2], values[3], values[4], values[5]};
    const auto within = [](std::int64_t value, std::int64_t max) { return value >= 0 && value <= max; };
    if (!within(head.kind, network) || !within(head.dtype, 2) || !within(head.fields, max_fields) || !within(head.dim, max_rank) ||
        !within(head.hash_bits, Poly2::max_hash_bits) || !within(head.diagonal, 1))
        file.reject("unknown plan");
    return head;
}

// Hands out the parts of a section one by one, each starting at a multiple of 64 bytes. All of it has to be used.
class Parts {
public:
    Parts(const ModelFile& file, std::string_view name) : file_(file), name_(name), bytes_(file.bytes(name)) {}

    const std::byte* take(std::size_t count, std::size_t stride) {
        if (stride && count > (bytes_.size() - at_) / stride) file_.reject("section '" + name_ + "' is too short");
        const std::byte* part = bytes_.data() + at_;
        at_ = std::min(bytes_.size(), (at_ + count * stride + ModelFile::alignment - 1) / ModelFile::alignment * ModelFile::alignment);
        return part;
    }
    void finish() const {
        if (at_ != bytes_.size()) file_.reject("section '" + name_ + "' is too long");
    }

private:
    const ModelFile& file_;
    std::string name_;
    std::span<const std::byte> bytes_;
    std::size_t at_ = 0;
};

class MatrixPlanReader {
public:
    MatrixPlanReader(const ModelFile& file, const Head& head, std::span<const std::int32_t> sizes, float bias)
        : file_(file),
          sizes_(sizes),
          order_(file.numbers<std::int32_t>("order", sizes.size())),
          dims_(file.numbers<std::int32_t>("dims", sizes.size())),
          cached_(file.numbers<std::int32_t>("cached", sizes.size())),
          ranges_(file.numbers<std::int32_t>("ranges")),
          rows_(file, "rows"),
          matrices_(file, "matrices"),
          seen_(sizes.size()),
          plan_{{}, {}, sizes.size(), 0, static_cast<Dtype>(head.dtype), head.diagonal != 0, bias} {
        if (ranges_.size() % 3) reject_ranges();
    }

    MatrixPlan read() {
        for (std::size_t p = 0; p < sizes_.size(); ++p) read_field(p);
        if (!ranges_.empty()) reject_ranges();
        rows_.finish();
        matrices_.finish();
        return std::move(plan_);
    }

private:
    [[noreturn]] void reject_ranges() const { file_.reject("a field's column ranges do not precede it"); }

    // Checks the numbers of the p-th field of the plan's order, and adds it.
    void read_field(std::size_t p) {
        const auto column = static_cast<std::size_t>(order_[p]);
        if (order_[p] < 0 || column >= sizes_.size() || seen_[column]) file_.reject("the field order is not a permutation");
        seen_[column] = true;
        if (dims_[p] < 1 || dims_[p] > Layout::max_dim || plan_.width + static_cast<std::size_t>(dims_[p]) > max_columns)
            file_.reject("invalid dimension " + std::to_string(dims_[p]));
        if (plan_.diagonal && dims_[p] != dims_[0]) file_.reject("diagonal field matrices require equal dimensions");
        if (cached_[p] < 0 || cached_[p] > sizes_[column]) file_.reject("a field has more cached features than features");
        const auto dim = static_cast<std::size_t>(dims_[p]), cached = static_cast<std::size_t>(cached_[p]);
        const auto size = static_cast<std::size_t>(sizes_[column]);
        const auto first_range = static_cast<std::uint32_t>(plan_.ranges.size());
        const std::size_t products = read_ranges(p);
        const auto range_count = static_cast<std::uint32_t>(plan_.ranges.size()) - first_range;
        const RowLayout with_product(plan_.dtype, products, dim), plain(plan_.dtype, 0, dim);
        const std::byte* cached_rows = rows_.take(cached, with_product.stride);
        const std::byte* plain_rows = rows_.take(size - cached, plain.stride);
        const auto* matrix = reinterpret_cast<const float*>(matrices_.take(plan_.diagonal ? 1 : dim, products * sizeof(float)));
        plan_.fields.push_back(
            {column, cached, dim, plan_.width, first_range, range_count, with_product, cached_rows, plain, plain_rows, matrix, size});
        plan_.width += dim;
    }

    // Takes the ranges of the p-th field from the section "ranges", which has rows of p, begin and length; returns the sum of their
    // lengths.
    std::size_t read_ranges(std::size_t p) {
        std::int64_t end = 0, sum = 0;
        for (; !ranges_.empty() && static_cast<std::size_t>(ranges_[0]) == p; ranges_ = ranges_.subspan(3)) {
            const std::int64_t begin = ranges_[1], length = ranges_[2];
            if (begin < end || length < 8 || length % 8 || begin + length >= static_cast<std::int64_t>(plan_.width) + 8) reject_ranges();
            end = begin + length;
            sum += length;
            plan_.ranges.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(length)});
        }
        return static_cast<std::size_t>(sum);
    }

    const ModelFile& file_;
    std::span<const std::int32_t> sizes_, order_, dims_, cached_, ranges_;
    Parts rows_, matrices_;
    std::vector<bool> seen_;
    MatrixPlan plan_;
};

std::vector<FeatureTable> read_tables(const ModelFile& file, std::span<const std::int32_t> sizes, const RowLayout& layout) {
    Parts rows(file, "rows");
    std::vector<FeatureTable> tables;
    for (const std::int32_t size : sizes) {
        const auto count = static_cast<std::size_t>(size);
        tables.push_back({count, rows.take(count, layout.stride)});
    }
    rows.finish();
    return tables;
}

// Returns the numbers of the fields whose entry in `lists` is `value`.
std::vector<std::uint32_t> fields_with(std::span<const std::uint8_t> lists, std::uint8_t value) {
    std::vector<std::uint32_t> fields;
    for (std::uint32_t f = 0; f < lists.size(); ++f)
        if (lists[f] == value) fields.push_back(f);
    return fields;
}

SumsPlan read_sums(const ModelFile& file, const Head& head, std::span<const std::int32_t> sizes, std::span<const std::uint8_t> lists,
                   float bias) {
    const auto dtype = static_cast<Dtype>(head.dtype);
    const auto rank = static_cast<std::size_t>(head.dim);
    const RowLayout layout(dtype, rank, 0);
    const auto signs = file.numbers<float>("signs", padded(rank));
    const float* pairs = head.hash_bits ? file.numbers<float>("pairs", std::size_t{1} << head.hash_bits).data() : nullptr;
    return {read_tables(file, sizes, layout),
            fields_with(lists, 0),
            fields_with(lists, 1),
            layout,
            rank,
            dtype,
            signs.data(),
            pairs,
            static_cast<std::int32_t>(head.hash_bits),
            bias};
}

FieldAwarePlan read_field_aware(const ModelFile& file, const Head& head, std::span<const std::int32_t> sizes, float bias) {
    const auto dtype = static_cast<Dtype>(head.dtype);
    const auto dim = static_cast<std::size_t>(head.dim);
    if (!dim) file.reject("invalid dimension 0");
    const RowLayout layout(dtype, 0, (sizes.size() - 1) * dim);
    return {read_tables(file, sizes, layout), layout, dim, dtype, bias};
}

// The sections "columns" and "dims" have the field and the dimension of each table of feature rows.
NetworkPlan read_network(const ModelFile& file, const Head& head, std::span<const std::int32_t> sizes, float bias) {
    const auto dims = file.numbers<std::int32_t>("dims");
    const auto columns = file.numbers<std::int32_t>("columns", dims.size());
    if (dims.empty() || dims.size() > max_fields) file.reject("invalid section 'dims'");
    NetworkPlan plan{{}, 0, static_cast<Dtype>(head.dtype), bias, {}};
    Parts rows(file, "rows");
    for (std::size_t i = 0; i < dims.size(); ++i) {
        const auto column = static_cast<std::size_t>(columns[i]), dim = static_cast<std::size_t>(dims[i]);
        if (columns[i] < 0 || column >= sizes.size()) file.reject("there is no field " + std::to_string(columns[i]));
        if (dims[i] < 1 || dims[i] > Layout::max_dim || plan.width + dim > max_network_columns)
            file.reject("invalid dimension " + std::to_string(dims[i]));
        const auto size = static_cast<std::size_t>(sizes[column]);
        const RowLayout layout(plan.dtype, 0, dim);
        const std::byte* features = rows.take(size, layout.stride);
        plan.fields.push_back({column, 0, dim, plan.width, 0, 0, layout, features, layout, features, nullptr, size});
        plan.width += dim;
    }
    rows.finish();
    if (!file.has("network.shapes")) {
        file.bytes("network.onnx");
        return plan;
    }
    for (std::size_t f = 0; f < dims.size(); ++f)
        if (dims.size() != sizes.size() || plan.fields[f].field != f || dims[f] != dims[0])
            file.reject("a sparse network requires one table, with equal dimensions");
    plan.sparse.emplace(file, sizes.size(), static_cast<std::size_t>(dims[0]));
    return plan;
}

}  // namespace

Plan read_plan(const ModelFile& file, std::span<const std::int32_t> sizes, std::span<const std::uint8_t> lists) {
    const Head head = read_head(file);
    if (sizes.empty() || static_cast<std::size_t>(head.fields) != sizes.size())
        file.reject("the plan and 'sizes' differ in the number of fields");
    if (std::ranges::any_of(sizes, [](std::int32_t size) { return size < 1; })) file.reject("a field has no features");
    const float bias = file.numbers<float>("bias", 1)[0];
    if (head.kind == field_matrices) return MatrixPlanReader(file, head, sizes, bias).read();
    if (head.kind == sums) return read_sums(file, head, sizes, lists, bias);
    if (head.kind == network) return read_network(file, head, sizes, bias);
    return read_field_aware(file, head, sizes, bias);
}

}  // namespace fm2
