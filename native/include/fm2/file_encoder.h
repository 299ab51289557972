// The encoder of a compiled model: how its fields are read, and which value has which id, as the file has it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/encoder.h"
#include "fm2/model_file.h"

namespace fm2 {

class FileEncoder {
public:
    // Throws BadModel where the parts of the file do not fit each other. Hashed and known values alike get ids below the sizes.
    FileEncoder(std::shared_ptr<const ModelFile> file, std::span<const std::int32_t> sizes);

    // The columns that a row has to have, in the order of its cells.
    const std::vector<std::string>& columns() const { return columns_; }
    const Encoder& encoder() const { return encoder_; }

private:
    std::shared_ptr<const ModelFile> file_;
    std::vector<std::string> columns_;
    Encoder encoder_;
};

}  // namespace fm2
