// The baseline: instructions that every processor of this architecture has.
#define FM2_LEVEL generic
#include "kernels/all.inc"
