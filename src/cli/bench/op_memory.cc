#include "cli/bench/op_memory.h"

#include "base/check.h"
#include "base/text.h"
#include "cli/host/memory.h"
#include "plan/split.h"

namespace plait::cli {

void check_memory(Operator op, const OpSize& size, int world) {
  const auto elements = [](std::int64_t rows, std::int64_t cols) {
    return static_cast<double>(rows) * static_cast<double>(cols);
  };
  // Operands, the weight as it came and packed, and what plans keep of rows and sums.
  const bool has_share = plan::split_of(op) != plan::Split::nothing;
  const double rank = elements(size.m, size.k) * 6 + elements(size.m, size.n) * 16 +
                      elements(size.n, size.k) / (has_share ? world : 1) * 8;
  const double needed = rank * world;
  const auto available = static_cast<double>(read_memory().available);
  PLAIT_CHECK(needed <= available, "m=", size.m, " n=", size.n, " k=", size.k, " may take ",
              base::show_bytes(needed), " for ", world, " ranks and there are ",
              base::show_bytes(available));
}

}  // namespace plait::cli
