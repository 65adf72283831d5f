// Random values, equal on every platform.
#pragma once

#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include "plait/dtype.h"
#include "plait/plan.h"
#include "plait/quantized.h"

namespace plait::verify {

// Returns the same numbers everywhere, which the standard's distributions don't guarantee.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t number)
      : random_(seed * 0x9e3779b97f4a7c15ULL + number) {
    random_.discard(8);
  }

  std::int64_t below(std::int64_t end) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(end));
  }
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  bool one_in(std::int64_t n) { return below(n) == 0; }
  template <class Value>
  Value of(const std::vector<Value>& values) {
    return values[static_cast<std::size_t>(below(static_cast<std::int64_t>(values.size())))];
  }

 private:
  std::mt19937_64 random_;
};

Dtype random_dtype(Random& random);
Dtype random_wire(Random& random);

// The values of operands. `wide`: denormal, tiny and large ones besides usual ones, so that sums
// underflow, or overflow on an f16 wire. `broken`: a few infinities and NaNs among usual ones.
enum class Numbers : std::uint8_t { usual, wide, broken };

Numbers random_numbers(Random& random);
std::string_view name(Numbers numbers);

// Tiny, odd, round and larger sizes, and sometimes 0.
std::int64_t random_size(Random& random, std::int64_t most);

QuantScheme random_scheme(Random& random);

// Any plan but the serial one.
Plan random_plan(Random& random, Operator op);

}  // namespace plait::verify
