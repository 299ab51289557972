// A compiled model as Python holds it.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "fm2/file_encoder.h"
#include "fm2/scorer.h"

struct Compiled {
    explicit Compiled(const std::shared_ptr<const fm2::ModelFile>& file)
        : shared(std::make_shared<fm2::Scorer>(file)), scorer(*shared), encoder(file, scorer.sizes()) {}

    std::shared_ptr<const fm2::Scorer> shared;  // rankers keep it too
    const fm2::Scorer& scorer;
    fm2::FileEncoder encoder;
    std::vector<nanobind::str> columns;  // the encoder's column names
};
