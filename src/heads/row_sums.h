// The sums over a row of logits that a loss needs. They have the same bits in any order and for all
// blocks.
//
// An exponential is a number of 24 bits. It belongs to the part that has its binary exponent:
// 16 · base to 16 · base + 15 the first part, 16 less the next one, and so on. Each part is a whole
// number of units of its lowest number, so that sums are exact. `base` is that of the row's largest
// logit so far: when it grows, the parts move down, and those below the last are dropped. What is
// dropped is then below 2^-48 of the largest exponential, and depends on the largest logit alone.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "heads/loops.h"

namespace plait::heads {

struct RowSums {
  std::int64_t parts[kParts] = {};
  std::int64_t logits = 0;  // their sum, in units of kInMean
  std::int64_t base = std::numeric_limits<std::int64_t>::min();
  float largest = -std::numeric_limits<float>::infinity();
  float target = 0;           // the target's logit, on the rank that has it
  std::uint32_t has_nan = 0;  // 1: yes
  std::uint32_t unused = 0;   // no padding travels

  // `mean`: their sum is needed as well.
  void add(const Loops& loops, const float* x, std::int64_t n, bool mean);
  void add(const RowSums& other);

  double log_sum_exp() const;

  // False for what no rank can have sent.
  bool is_possible() const;

 private:
  void raise(std::int64_t base);
};

static_assert(std::is_trivially_copyable_v<RowSums> &&
              sizeof(RowSums) == 6 * sizeof(std::int64_t) + 4 * sizeof(float));

}  // namespace plait::heads
