#include "comm/core/timed_product.h"

#include <algorithm>

namespace plait::comm {

// Polls take their time from a product too. A sleeper wakes late: the next wait is shorter by that.
void TimedProduct::multiply(const ProductWork& product, PollStep poll_step) {
  if (ns_per_flop_ == 0) return;
  const auto time =
      static_cast<base::Nanoseconds>(static_cast<double>(product.flops()) * ns_per_flop_);
  base::Nanoseconds end = base::now() + std::max<base::Nanoseconds>(time - late_, 0);
  base::Nanoseconds now = base::now();
  while (now < end) {
    base::sleep_until(std::min(end, now + std::max(product.poll, base::kMicrosecond)));
    const base::Nanoseconds before = base::now();
    if (before < end) poll_step();
    now = base::now();
    if (before < end) end += now - before;
  }
  late_ = now - end;
}

}  // namespace plait::comm
