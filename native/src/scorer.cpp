#include "fm2/scorer.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "aligned_buffer.h"
#include "fm2/plans.h"
#include "fm2/pool.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

// Calls the kernel of a plan for rows whose ids have been checked.
struct PlanScorer {
    const ScoringKernels& kernels;
    const std::int32_t* ids;
    std::size_t rows;
    float* logits;

    void operator()(const MatrixPlan& plan) const {
        static thread_local AlignedBuffer scratch;
        scratch.reserve(plan.scratch_floats() * sizeof(float));
        kernels.score_matrices(plan, ids, rows, logits, reinterpret_cast<float*>(scratch.data()));
    }
    void operator()(const SumsPlan& plan) const { kernels.score_sums(plan, ids, rows, logits); }
    void operator()(const FieldAwarePlan& plan) const { kernels.score_field_aware(plan, ids, rows, logits); }
};

[[noreturn]] void throw_bad_id(std::size_t row, std::int32_t id, std::size_t field, std::int32_t size) {
    throw std::out_of_range("row " + std::to_string(row) + " has id " + std::to_string(id) + " in field " + std::to_string(field) +
                            "; it must be between 0 and " + std::to_string(size - 1));
}

}  // namespace

Scorer::Scorer(std::shared_ptr<const ModelFile> file)
    : file_(std::move(file)), sizes_(file_->numbers<std::int32_t>("sizes")), plan_(read_plan(*file_, sizes_)) {}

void check_ids(std::span<const std::int32_t> sizes, std::span<const std::size_t> fields, const std::int32_t* ids, std::size_t first,
               std::size_t rows) {
    for (std::size_t r = first; r < first + rows; ++r) {
        const std::int32_t* row = ids + r * sizes.size();
        std::uint32_t wrong = 0;  // as wide as an id, so that the comparisons are vectorized
        for (std::size_t f = 0; f < sizes.size(); ++f) wrong |= static_cast<std::uint32_t>(row[f]) >= static_cast<std::uint32_t>(sizes[f]);
        for (std::size_t f = 0; wrong && f < sizes.size(); ++f)
            if (row[f] < 0 || row[f] >= sizes[f]) throw_bad_id(r, row[f], fields.empty() ? f : fields[f], sizes[f]);
    }
}

void Scorer::score(const Kernels& kernels, const std::int32_t* ids, std::size_t rows, float* logits, std::size_t threads) const {
    constexpr std::size_t rows_per_task = 256;
    parallel_ranges(rows, rows_per_task, threads, [&](std::size_t begin, std::size_t end) {
        check_ids(sizes_, {}, ids, begin, end - begin);
        std::visit(PlanScorer{kernels.scoring, ids + begin * fields(), end - begin, logits + begin}, plan_);
    });
}

float probability(float logit) { return static_cast<float>(1 / (1 + std::exp(-double{logit}))); }

}  // namespace fm2
