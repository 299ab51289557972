// Scores rows of ids with a compiled model. A scorer does not change after construction, so any number of threads may use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fm2/model_file.h"
#include "fm2/plans.h"

namespace fm2 {

struct Kernels;

class Scorer {
public:
    // Throws BadModel if sections of the file do not match each other.
    explicit Scorer(std::shared_ptr<const ModelFile> file);

    const ModelFile& file() const { return *file_; }
    std::size_t fields() const { return sizes_.size(); }
    std::span<const std::int32_t> sizes() const { return sizes_; }
    const Plan& plan() const { return plan_; }

    // Writes the logits [rows] of ids [rows, fields]. Throws std::out_of_range if a field does not have an id. For up to 256 rows, nothing
    // is allocated after the first call of a thread.
    void score(const Kernels& kernels, const std::int32_t* ids, std::size_t rows, float* logits, std::size_t threads) const;

private:
    std::shared_ptr<const ModelFile> file_;
    std::span<const std::int32_t> sizes_;
    Plan plan_;
};

// Throws std::out_of_range if an id in the rows [first, first + rows) is outside its field. Ids have one column per size. `fields` has the
// field numbers for the message; if it is empty, the columns are the fields.
void check_ids(std::span<const std::int32_t> sizes, std::span<const std::size_t> fields, const std::int32_t* ids, std::size_t first,
               std::size_t rows);

float probability(float logit);

struct Explanation {
    double bias;
    std::vector<double> fields;  // [fields]
    std::vector<double> pairs;   // [fields, fields]: entry (i, j) for i < j, zero elsewhere
};

// Explains the row with these ids [fields]. Throws std::out_of_range if a field does not have an id.
Explanation explain(const Kernels& kernels, const Scorer& scorer, const std::int32_t* ids);

}  // namespace fm2
