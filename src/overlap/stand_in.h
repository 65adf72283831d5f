// Who takes the place of a rank's products where they are not to be multiplied: for measuring a
// schedule on a machine with fewer cores than ranks (TimedProduct), or predicting it for a machine
// that is not here (predict/modelled_product.h).
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/function_ref.h"

namespace plait::overlap {

class StandIn {
 public:
  using Look = base::FunctionRef<void()>;

  struct Product {
    std::int64_t rows, columns, k;
    base::Nanoseconds poll;

    std::int64_t flops() const { return 2 * rows * columns * k; }
  };

  virtual ~StandIn() = default;

  // Returns when the product would be there; calls `look` about every `poll` meanwhile.
  virtual void product(const Product& product, Look look) = 0;
};

}  // namespace plait::overlap
