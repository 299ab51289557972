// The functions that are compiled once per instruction set. Each level defines one Kernels object; cpu.cpp selects it.
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
    // Writes the positions in data[0, size) of all bytes equal to a or b, in order, to positions [size]; returns their number.
    std::size_t (*find_bytes)(const char* data, std::size_t size, char a, char b, std::uint32_t* positions);
    TableKernels tables;
    // losses = weight * -log(likelihood of the label), gradients = weight * (p - label), with p = 1 / (1 + e^-logit).
    void (*logistic)(const float* logits, const float* labels, const float* weights, std::size_t count, float* losses, float* gradients);
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
