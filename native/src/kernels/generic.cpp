// The plainest level: whatever the compiler may assume of every processor of this kind.
#define FM2_LEVEL generic
#include "kernels/all.inc"
