// Scores encoded rows with a compiled model. A scorer does not change after construction, so any number of threads may use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fm2/calibration.h"
#include "fm2/model_file.h"
#include "fm2/plans.h"
#include "fm2/rows.h"

namespace fm2 {

struct Kernels;

// The columns of encoded rows: for each one its field, its number of features, and whether it has lists.
class RowFormat {
public:
    // Columns for some fields of a model whose fields have these sizes; lists[f] is 1 if field f has lists.
    RowFormat(std::vector<std::size_t> fields, std::span<const std::int32_t> sizes, std::span<const std::uint8_t> lists);

    std::span<const std::size_t> fields() const { return fields_; }
    bool is_list(std::size_t column) const { return lists_[column]; }
    std::span<const std::size_t> list_columns() const { return list_columns_; }

    // Throws std::invalid_argument unless the rows have lists in the right columns.
    void check_columns(const Rows& rows) const;
    // Returns a copy of the rows [begin, end), valid until this thread makes the next one. Another thread may write to the given rows at
    // any time, so that checking them in place would prove nothing. Throws std::out_of_range if an id is outside its field, or a list does
    // not exist.
    Rows checked_copy(const Rows& rows, std::size_t begin, std::size_t end) const;

private:
    void copy_lists(const Lists& lists, std::size_t column, std::size_t first_row, std::span<std::int32_t> ids, ListBuffer& to) const;

    std::vector<std::size_t> fields_;
    std::vector<std::int32_t> sizes_, limits_;  // numbers of lists have a limit that depends on the rows
    std::vector<std::uint8_t> lists_;
    std::vector<std::size_t> list_columns_;
};

// Returns the rows [begin, end).
inline Rows rows_between(const Rows& rows, std::size_t begin, std::size_t end) {
    return {rows.row(begin), end - begin, rows.fields, rows.lists};
}

class Scorer {
public:
    // Throws BadModel if sections of the file do not match each other.
    explicit Scorer(std::shared_ptr<const ModelFile> file);

    const ModelFile& file() const { return *file_; }
    std::size_t fields() const { return sizes_.size(); }
    std::span<const std::int32_t> sizes() const { return sizes_; }
    std::span<const std::uint8_t> lists() const { return lists_; }  // 1 for fields whose ids are numbers of lists
    const RowFormat& format() const { return format_; }
    const Plan& plan() const { return plan_; }
    const Calibration& calibration() const { return calibration_; }

    // Writes the logits of rows. Throws std::invalid_argument if they do not have lists in the right fields, and std::out_of_range if a
    // field does not have an id. For up to 256 rows, nothing is allocated after the first call of a thread.
    void score(const Kernels& kernels, const Rows& rows, float* logits, std::size_t threads) const;

    // Returns the plan of a network that score() cannot score, because the section "network.onnx" has its layers; null for other models.
    const NetworkPlan* onnx_network() const;
    // Writes the embeddings [rows, width] of a network's rows, and their logits without the network. Throws like score().
    void embed(const Kernels& kernels, const Rows& rows, float* out, float* logits, std::size_t threads) const;

private:
    std::shared_ptr<const ModelFile> file_;
    std::span<const std::int32_t> sizes_;
    std::span<const std::uint8_t> lists_;
    Plan plan_;
    RowFormat format_;
    Calibration calibration_;
};

// What one value of a list contributes to a logit: its weighted linear weight, and its pair terms with all other fields.
struct ValueTerms {
    std::size_t field;
    std::int32_t id;
    float weight;
    double linear, pairs;
};

struct Explanation {
    double bias;
    std::vector<double> fields;      // [fields]
    std::vector<double> pairs;       // [fields, fields]: entry (i, j) for i < j, zero elsewhere
    std::vector<ValueTerms> values;  // of all lists, field by field
};

// Explains the first row. Throws like Scorer::score.
Explanation explain(const Kernels& kernels, const Scorer& scorer, const Rows& rows);

}  // namespace fm2
