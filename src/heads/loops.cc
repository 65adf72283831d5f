#include "heads/loops.h"

#include <bit>

#include "heads/vector_loops.h"

namespace plait::heads {

const Loops& portable_loops() {
  static constexpr Loops kLoops = {
      "portable", base::InstructionSet::basic, extent, add_exponentials, sum, softmax, reaches};
  return kLoops;
}

const Loops& loops() {
  for (const Loops* const set : loop_sets()) {
    if (base::may_use(set->needs)) return *set;
  }
  return portable_loops();
}

std::int64_t exponent_of(double x) {
  return static_cast<std::int64_t>((x * kLog2E + kWhole) - kWhole);
}

// x = 2^n · m with m from √½ to √2, and ln m = 2 · artanh f with f = (m - 1) / (m + 1), at most
// 0.172: what the series leaves out is below 2^-54 of the first term.
double logarithm(double x) {
  constexpr std::int64_t kRootHalf = 0x3fe6a09e667f3bcd;
  const auto bits = std::bit_cast<std::int64_t>(x);
  const std::int64_t n = (bits - kRootHalf) >> 52;
  const auto m = std::bit_cast<double>(bits - n * (std::int64_t{1} << 52));
  const double f = (m - 1) / (m + 1);
  const double squared = f * f;
  double series = 0;
  for (int i = 19; i >= 1; i -= 2) series = series * squared + 2.0 / i;
  const auto exponent = static_cast<double>(n);
  return exponent * kLn2High + (series * f + exponent * kLn2Low);
}

}  // namespace plait::heads
