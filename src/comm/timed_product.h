// Products that are waited for, as long as they would take, in place of multiplying. Where a
// machine has fewer cores than ranks, each rank's product can take the time all the same that it
// would take on a core of its own.
#pragma once

#include <optional>

#include "comm/stand_in.h"

namespace plait::comm {

// Nanoseconds for each multiplication and addition; 0 leaves the collective alone; nothing: they
// are multiplied.
using Pace = std::optional<double>;

class TimedProduct final : public StandIn {
 public:
  explicit TimedProduct(double pace) : pace_(pace) {}

  void product(const Product& product, Look look) override;

 private:
  double pace_;
  base::Nanoseconds late_ = 0;  // that the last wait was too long
};

}  // namespace plait::comm
