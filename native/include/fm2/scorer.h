// A compiled model at work: ids in, logits out. Nothing in it changes after it is made, so any number of threads may use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "fm2/model_file.h"
#include "fm2/plans.h"

namespace fm2 {

struct Kernels;

class Scorer {
public:
    using Plan = std::variant<PrefixPlan, SquaresPlan, PartnersPlan>;

    // Throws BadModel where the file's parts do not fit each other.
    explicit Scorer(std::shared_ptr<const ModelFile> file);

    const ModelFile& file() const { return *file_; }
    std::size_t fields() const { return sizes_.size(); }
    std::span<const std::int32_t> sizes() const { return sizes_; }
    const Plan& plan() const { return plan_; }

    // logits [rows] of ids [rows, fields]. Throws std::out_of_range where an id is not in its field.
    void score(const Kernels& kernels, const std::int32_t* ids, std::size_t rows, float* logits, std::size_t threads) const;

private:
    std::shared_ptr<const ModelFile> file_;
    std::span<const std::int32_t> sizes_;
    Plan plan_;
};

// Throws std::out_of_range where an id of the rows [first, first + rows) is not in its field. Ids have as many columns as there are sizes;
// the message calls them by the numbers of `fields`, or by their own if there are none.
void check_ids(std::span<const std::int32_t> sizes, std::span<const std::size_t> fields, const std::int32_t* ids, std::size_t first,
               std::size_t rows);

float probability(float logit);

}  // namespace fm2
