// The fused kernels beside cuBLASLt's best product.
#include <unistd.h>

#include "gpu/figure.h"
#include "gpu/kernel_cost.cuh"
#include "gpu/overlap_cases.cuh"
#include "gpu/overlap_checks.h"
#include "gpu/shapes.h"

namespace plait::gpu {
namespace {

// A fused kernel of rank 0 among eight, which waits for nothing, beside cuBLASLt.
struct CostGroup {
  CostGroup(DeviceOperator op, int m, int n, int k, int wire)
      : c{.op = op, .world = 8, .m = m, .n = n, .k = k, .wire = wire, .out = cuda::kBf16},
        ranks(8, cuda::needs_of(problem_of(c), 8)) {
    ranks.raise_all(0);
  }

  void launch(const LtOperands& set, cudaStream_t stream) {
    const cuda::DevicePlan plan = {
        .schedule = DeviceSchedule::fused, .group = 8, .share = {.blocks = multiprocessors()}};
    const auto operands = cuda::DeviceOperands{.x = set.x,
                                               .x_stride = c.k,
                                               .weight = set.w,
                                               .weight_stride = c.k,
                                               .out = set.out,
                                               .out_stride = c.n};
    check_cuda(cuda::run(problem_of(c), operands, plan, {.rank = 0, .world = 8}, ranks.mailbox(0),
                         1, stream));
  }

  Case c;
  VirtualRanks ranks;
};

void print_cost(const NamedShape& shape, DeviceOperator op, int wire, const KernelCost& cost) {
  Figure("kernel cost")
      .text("op", name(op))
      .text("shape", shape.name)
      .number("m", static_cast<double>(shape.m))
      .number("n", static_cast<double>(shape.n))
      .number("k", static_cast<double>(shape.k))
      .text("wire", wire == cuda::kF32 ? "f32" : "bf16")
      .number("ours_us", cost.ours_us)
      .number("cublaslt_us", cost.peer_us)
      .number("tflops", tflops(shape.m, shape.n, shape.k, cost.ours_us))
      .number("share", cost.share())
      .print();
}

}  // namespace

int measure_cost(const std::string& which) {
  Stream stream;
  std::vector<double> best_shares;
  for (const bool gather : {false, true}) {
    std::vector<NamedShape> shapes = gather ? model_shapes(false) : model_shapes(true);
    if (!gather)
      for (const NamedShape& shape : mindspeed_shapes()) shapes.push_back(shape);
    const auto op =
        gather ? DeviceOperator::all_gather_matmul : DeviceOperator::matmul_reduce_scatter;
    int number = 0;
    for (const NamedShape& shape : shapes) {
      if (which == "few" && number++ % 4 != 0) continue;
      alarm(120);
      double best = 0;
      for (const int wire : {cuda::kBf16, cuda::kF32}) {
        if (wire == cuda::kF32 && (gather || which == "few")) continue;
        CostGroup group(op, static_cast<int>(shape.m), static_cast<int>(shape.n),
                        static_cast<int>(shape.k), wire);
        const LtProblem problem = {.m = shape.m, .n = shape.n, .k = shape.k};
        const KernelCost cost = kernel_cost<Bf16Value, Bf16Value>(
            problem, [&](const LtOperands& set) { group.launch(set, stream.get()); }, stream.get(),
            {.warmups = 2, .runs = 9});
        print_cost(shape, op, wire, cost);
        if (wire == cuda::kBf16) best = cost.share();
      }
      best_shares.push_back(best);
    }
  }
  Figure("kernel cost, geometric mean").number("share", geometric_mean(best_shares)).print();
  return 0;
}

}  // namespace plait::gpu
