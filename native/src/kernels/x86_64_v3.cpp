// x86-64-v3: AVX2, FMA, BMI2, F16C. Only this file is compiled with -march=x86-64-v3.
#define FM2_LEVEL x86_64_v3
#include "kernels/all.inc"
