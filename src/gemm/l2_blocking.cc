#include "gemm/l2_blocking.h"

#include <unistd.h>

#include <algorithm>

namespace plait::gemm {
namespace {

constexpr long kUsual = 1L << 20;    // where the system doesn't know, as in some virtual machines
constexpr long kLargest = 4L << 20;  // beyond it, more rows at once only delay the first result

}  // namespace

Blocking fill_l2(const Blocking& shape, Dtype operand) {
  const long known = sysconf(_SC_LEVEL2_CACHE_SIZE);
  const long cache = known > 0 ? std::min(known, kLargest) : kUsual;
  const long row_bytes =
      shape.k * static_cast<long>(size_of(operand)) + 4L * kPanelColumns * shape.panels;
  const long times = cache / 2 / row_bytes / shape.rows;
  Blocking filled = shape;
  filled.rows = shape.rows * static_cast<int>(std::max(times, 1L));
  return filled;
}

}  // namespace plait::gemm
