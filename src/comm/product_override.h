// Replaces a rank's products where they are not to be multiplied: for measuring a schedule on a
// machine with fewer cores than ranks (comm/timed_product.h), or predicting it for another machine
// (predict/modelled_product.h). Waits, chunks and their order stay the schedule's own.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/function_ref.h"
#include "plait/trace.h"

namespace plait::comm {

class ProductOverride {
 public:
  using PollStep = base::FunctionRef<void()>;

  struct Product {
    std::int64_t rows, columns, k;
    double x_bytes, weight_bytes, out_bytes;  // of an element
    base::Nanoseconds poll;
    Label label = "product";

    // Set for several products that follow one another in one call and could be one kernel: how
    // large that is (0: this product is by itself), and whether this is the first of them.
    std::int64_t all_rows = 0, all_columns = 0;
    bool first = true;

    bool fused() const { return all_rows > 0 && all_columns > 0; }

    std::int64_t flops() const { return 2 * rows * columns * k; }
  };

  virtual ~ProductOverride() = default;

  // Returns when the product would be there; calls `poll_step` about every `poll` meanwhile.
  virtual void product(const Product& product, PollStep poll_step) = 0;
};

}  // namespace plait::comm
