#include "experts/polled_product.h"

#include <thread>
#include <utility>

#include "base/clock.h"
#include "comm/core/executor.h"
#include "plait/trace.h"

namespace plait::experts {
namespace {

// Between two polls.
constexpr base::Nanoseconds kPollInterval = 50 * base::kMicrosecond;

// The usual number of rows of an expert. A constant, since a backend may be chosen by it: bits must
// not depend on the number of ranks.
constexpr std::int64_t kUsualRows = 16;

}  // namespace

GroupedGemm select_product(const ExpertsDesc& desc, const ExpertsOptions& options,
                           const ProductShape& shape) {
  return select_grouped_gemm({.m = kUsualRows,
                              .n = shape.n,
                              .k = shape.k,
                              .x = desc.dtype,
                              .weight = desc.weight.scheme ? Dtype::s8 : desc.weight.dtype,
                              .out = shape.out,
                              .quant = desc.weight.scheme,
                              .shares = shape.shares},
                             {.backend = options.backend, .threads = options.threads});
}

void multiply(GroupedGemm& gemm, const GroupedGemmCall& call, const comm::Group& group,
              PollStep poll_step) {
  const GemmDesc& desc = gemm.desc();
  const Span span(group.trace(), Lane::compute, "product",
                  {.flops = 2 * call.x.rows * desc.n * desc.k});
  if (comm::Executor* const executor = comm::product_executor(group)) {
    bool is_first = true;
    for (const std::int64_t rows : call.rows) {
      if (rows == 0) continue;
      executor->multiply({.rows = rows,
                          .columns = desc.n,
                          .k = desc.k,
                          .x_bytes = static_cast<double>(size_of(desc.x)),
                          .weight_bytes = desc.quant ? desc.quant->bits / 8.0
                                                     : static_cast<double>(size_of(desc.weight)),
                          .out_bytes = static_cast<double>(size_of(desc.out)),
                          .poll = kPollInterval,
                          .all_rows = call.x.rows,
                          .all_columns = desc.n,
                          .first = std::exchange(is_first, false),
                          .own_weight = true},
                         poll_step);
    }
    return;
  }
  struct TileHook {
    PollStep poll_step;
    base::Nanoseconds next = base::now() + kPollInterval;
    std::thread::id caller = std::this_thread::get_id();
  } hook = {.poll_step = poll_step};
  GroupedGemmCall polled = call;
  // Several threads share the product, and only the caller's may send and receive.
  polled.on_tile = [&hook](std::int64_t /*group*/, const Tile& /*tile*/) {
    if (std::this_thread::get_id() != hook.caller || base::now() < hook.next) return;
    hook.poll_step();
    hook.next = base::now() + kPollInterval;
  };
  gemm.run(polled);
}

}  // namespace plait::experts
