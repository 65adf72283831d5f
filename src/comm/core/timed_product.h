// Products that are waited for, as long as they would take, in place of multiplying. Where a
// machine has fewer cores than ranks, each rank's product can take the time all the same that it
// would take on a core of its own.
#pragma once

#include "comm/core/executor.h"

namespace plait::comm {

class TimedProduct final : public Executor {
 public:
  // Nanoseconds for each multiplication and each addition. With 0 a product takes no time, so that
  // the collective alone is left.
  explicit TimedProduct(double ns_per_flop) : ns_per_flop_(ns_per_flop) {}

  bool has_products() const override { return true; }
  void multiply(const ProductWork& product, PollStep poll_step) override;

 private:
  double ns_per_flop_;
  base::Nanoseconds late_ = 0;  // that the last wait was too long
};

}  // namespace plait::comm
