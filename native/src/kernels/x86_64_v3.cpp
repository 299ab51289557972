// x86-64-v3: AVX2, FMA, BMI2. CMake compiles this file, and no other, with -march=x86-64-v3.
#define FM2_LEVEL x86_64_v3
#include "kernels/all.inc"
