// The functions that exist once per instruction set. Each level fills one such table; cpu.cpp picks the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/attention.h"
#include "kernels/ffm.h"
#include "kernels/poly2.h"
#include "kernels/quadratic.h"
#include "kernels/scoring.h"
#include "kernels/tables.h"

namespace fm2 {

struct Kernels {
    // Writes the positions in data[0, size) of all bytes equal to a or b, in order; returns how many.
    // `positions` has room for size entries.
    std::size_t (*find_bytes)(const char* data, std::size_t size, char a, char b, std::uint32_t* positions);
    TableKernels tables;
    // losses = weight * -log(likelihood of the label), slopes = weight * (p - label), for p = 1 / (1 + e^-logit).
    void (*logistic)(const float* logits, const float* labels, const float* weights, std::size_t count, float* losses, float* slopes);
    FfmKernels ffm;
    Poly2Kernels poly2;
    QuadraticKernels quadratic;
    AttentionKernels attention;
    ScoringKernels scoring;
};

const Kernels& kernels();                         // of the level in use
const Kernels& kernels(const std::string& name);  // of a level by name, for tests

namespace generic {
extern const Kernels kernels;
}
namespace x86_64_v3 {
extern const Kernels kernels;
}

}  // namespace fm2
