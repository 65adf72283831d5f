#include "gemm/l2_blocking.h"

#include <unistd.h>

#include <algorithm>

namespace plait::gemm {
namespace {

constexpr long kUsual = 1L << 20;    // if the system doesn't know, as in some virtual machines
constexpr long kLargest = 4L << 20;  // beyond it, more rows at once only delay the first result

// How many times shape.rows fit into half the cache, with their sums.
long times_that_fit(const Blocking& shape, Dtype operand, long cache) {
  const long row_bytes =
      shape.k * static_cast<long>(size_of(operand)) + 4L * kPanelColumns * shape.panels;
  return std::min(cache, kLargest) / 2 / row_bytes / shape.rows;
}

}  // namespace

Blocking fill_l2(const Blocking& shape, Dtype operand, long cache) {
  Blocking filled = shape;
  long times = times_that_fit(shape, operand, cache);
  if (times < 2 && shape.k % (2 * kKStep) == 0) {
    Blocking shorter = shape;
    shorter.k /= 2;
    shorter.spreads_rows = true;
    const long times_shorter = times_that_fit(shorter, operand, cache);
    if (times_shorter >= 2) {
      filled = shorter;
      times = times_shorter;
    }
  }
  filled.rows = shape.rows * static_cast<int>(std::max(times, 1L));
  return filled;
}

Blocking fill_l2(const Blocking& shape, Dtype operand) {
  const long known = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return fill_l2(shape, operand, known > 0 ? known : kUsual);
}

}  // namespace plait::gemm
