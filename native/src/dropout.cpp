#include "fm2/dropout.h"

#include "fm2/expect.h"
#include "fm2/hash.h"

namespace fm2 {
namespace {

std::uint32_t threshold(float probability) {
    expect(probability >= 0 && probability < 1, "dropout: a probability must be at least 0 and below 1, got ", probability);
    return static_cast<std::uint32_t>(static_cast<double>(probability) * 4294967296.0);
}

}  // namespace

Mask::Mask(const Dropout& dropout, std::uint64_t step)
    : key(mix(mix(dropout.seed ^ 0x9e3779b97f4a7c15u, 0xd1342543de82ef95u) ^ step, 0xa0761d6478bd642fu)),
      element(threshold(dropout.element)),
      field(threshold(dropout.field)),
      scale(1 / ((1 - dropout.element) * (1 - dropout.field))) {}

}  // namespace fm2
