// Processes four elements at a time. It is compiled so that a product and its sum are one
// instruction if every processor of the target has it.
#include "measure/peak_loops.h"

namespace plait::measure {
namespace {

using Vector [[gnu::vector_size(16)]] = float;
constexpr int kSums = 12;

}  // namespace

bool always_usable() { return true; }

// Each product uses its own sum, so that no two are equal and all must be computed.
double run_portable(std::int64_t rounds) {
  Vector sums[kSums] = {};
  Vector factor = {1, 1, 1, 1};
  asm volatile("" : "+m"(factor));
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (Vector& sum : sums) sum = sum * factor + factor;
  }
  for (const Vector& sum : sums) asm volatile("" : : "m"(sum));
  return kSums * 4 * 2;
}

}  // namespace plait::measure
