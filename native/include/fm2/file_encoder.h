// The encoder of a compiled model: field types and vocabularies, read from the file.
#pragma once

#include <algorithm>

#include "fm2/encoder.h"
#include "fm2/scorer.h"

namespace fm2 {

class FileEncoder {
public:
    // Throws BadModel if sections do not match each other or the scorer. The ids of hashed and of known values are below the sizes.
    FileEncoder(std::shared_ptr<const ModelFile> file, const Scorer& scorer);

    // The columns of a row, in the order of its cells.
    const std::vector<std::string>& columns() const { return columns_; }
    const Encoder& encoder() const { return encoder_; }

private:
    void read_vocabularies(const Scorer& scorer);
    void read_crosses(std::span<const std::int32_t> sizes);
    void read_trees(std::span<const std::int32_t> sizes);

    std::shared_ptr<const ModelFile> file_;
    std::vector<std::string> columns_;
    Encoder encoder_;
};

// Encoded rows of a model that are made one after the other. Starting again keeps the memory.
class RowBuffer {
public:
    void start(const Scorer& scorer, std::size_t rows) {
        fields_ = scorer.fields();
        count_ = rows;
        ids_.resize(std::max(ids_.size(), rows * fields_));
        if (buffers_.size() < fields_) buffers_.resize(fields_);
        for (const std::size_t f : scorer.format().list_columns()) buffers_[f].clear();
    }
    std::int32_t* row(std::size_t index) { return ids_.data() + index * fields_; }
    std::vector<ListBuffer>& lists() { return buffers_; }

    // Valid until a row is added.
    Rows view(const Scorer& scorer) {
        const auto list_columns = scorer.format().list_columns();
        lists_.assign(list_columns.empty() ? 0 : fields_, {});
        for (const std::size_t f : list_columns) lists_[f] = buffers_[f].view();
        return {ids_.data(), count_, fields_, lists_};
    }

private:
    std::size_t fields_ = 0, count_ = 0;
    std::vector<std::int32_t> ids_;
    std::vector<ListBuffer> buffers_;
    std::vector<Lists> lists_;
};

// An open model: everything that scores raw or encoded rows.
struct CompiledModel {
    explicit CompiledModel(const std::shared_ptr<const ModelFile>& file)
        : shared(std::make_shared<Scorer>(file)), scorer(*shared), encoder(file, scorer) {}

    std::shared_ptr<const Scorer> shared;  // rankers keep it too
    const Scorer& scorer;
    FileEncoder encoder;
};

}  // namespace fm2
