// Four elements at a time; compiled so that a product and its sum are one instruction where the
// processor is sure to have it.
#include "cli/bench/peak_loops.h"

namespace plait::cli {
namespace {

using Vector [[gnu::vector_size(16)]] = float;
constexpr int kSums = 12;

}  // namespace

bool always_usable() { return true; }

double run_portable(std::int64_t rounds) {
  Vector sums[kSums] = {};
  Vector a = {1, 1, 1, 1};
  for (std::int64_t round = 0; round < rounds; ++round) {
    asm volatile("" : "+m"(a));  // so that no round is taken for the repetition of another
    for (Vector& sum : sums) sum = sum + a * a;
  }
  for (Vector& sum : sums) asm volatile("" : : "m"(sum));
  return kSums * 4 * 2;
}

}  // namespace plait::cli
