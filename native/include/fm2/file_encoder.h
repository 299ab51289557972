// The encoder of a compiled model: field types and vocabularies, read from the file.
#pragma once

#include "fm2/encoder.h"
#include "fm2/scorer.h"

namespace fm2 {

class FileEncoder {
public:
    // Throws BadModel if sections do not match each other. The ids of hashed and of known values are below the sizes.
    FileEncoder(std::shared_ptr<const ModelFile> file, std::span<const std::int32_t> sizes);

    // The columns of a row, in the order of its cells.
    const std::vector<std::string>& columns() const { return columns_; }
    const Encoder& encoder() const { return encoder_; }

private:
    std::shared_ptr<const ModelFile> file_;
    std::vector<std::string> columns_;
    Encoder encoder_;
};

// An open model: everything that scores raw or encoded rows.
struct CompiledModel {
    explicit CompiledModel(const std::shared_ptr<const ModelFile>& file)
        : shared(std::make_shared<Scorer>(file)), scorer(*shared), encoder(file, scorer.sizes()) {}

    std::shared_ptr<const Scorer> shared;  // rankers keep it too
    const Scorer& scorer;
    FileEncoder encoder;
};

}  // namespace fm2
