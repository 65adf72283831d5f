#include "nn/gradients.h"

#include <algorithm>
#include <array>
#include <thread>

#include "base/clock.h"
#include "base/parallel.h"
#include "comm/core/executor.h"
#include "tensor/kernels.h"

namespace plait::nn {
namespace {

// Between two polls. A collective moves up to 256 KiB a peer at each.
constexpr base::Nanoseconds kPollInterval = 50 * base::kMicrosecond;

// A block of columns whose sums stay in registers' reach while rows pass by.
constexpr std::int64_t kBlock = 512;

void sum_block(const ConstTensorView& grad_out, const TensorView& to, bool accumulate) {
  const auto count = static_cast<std::size_t>(to.cols);
  std::array<float, kBlock> sum = {};
  std::array<float, kBlock> row;
  for (std::int64_t i = 0; i < grad_out.rows; ++i) {
    convert(grad_out.row(i), grad_out.dtype, row.data(), Dtype::f32, count);
    for (std::size_t j = 0; j < count; ++j) sum[j] += row[j];
  }
  if (accumulate) {
    convert(to.data, to.dtype, row.data(), Dtype::f32, count);
    for (std::size_t j = 0; j < count; ++j) sum[j] += row[j];
  }
  for (std::size_t j = 0; j < count; ++j) sum[j] = tensor::with_one_nan(sum[j]);
  convert(sum.data(), Dtype::f32, to.data, to.dtype, count);
}

}  // namespace

void run(const WeightGradient& gradient, Workspace& workspace, const GradientSpec& spec,
         PollStep poll_step) {
  const bool out_in = gradient.layout == WeightLayout::out_in;
  const ConstTensorView& left = out_in ? gradient.grad_out : gradient.x;
  const ConstTensorView& right = out_in ? gradient.x : gradient.grad_out;
  Gemm& gemm = workspace.gemm({.m = left.cols,
                               .n = right.cols,
                               .k = left.rows,
                               .x = left.dtype,
                               .weight = right.dtype,
                               .out = gradient.to.dtype},
                              spec.gemm);
  if (comm::Executor* executor = comm::product_executor(spec.group)) {
    return executor->multiply({.rows = left.cols,
                               .columns = right.cols,
                               .k = left.rows,
                               .x_bytes = static_cast<double>(size_of(left.dtype)),
                               .weight_bytes = static_cast<double>(size_of(right.dtype)),
                               .out_bytes = static_cast<double>(size_of(gradient.to.dtype)),
                               .poll = kPollInterval,
                               .label = "weight gradient"},
                              poll_step);
  }
  const Span span(spec.group.trace(), Lane::compute, "weight gradient",
                  {.flops = 2 * left.cols * right.cols * left.rows});
  GemmCall call = {.x = {.view = left, .transposed = true},
                   .weight = WeightView{.view = right, .layout = WeightLayout::in_out},
                   .out = gradient.to,
                   .accumulate = gradient.accumulate};
  struct TileHook {
    PollStep poll_step;
    const comm::Group& group;
    base::Nanoseconds next = base::now() + kPollInterval;
    std::thread::id caller = std::this_thread::get_id();
  } hook = {.poll_step = poll_step, .group = spec.group};
  // A hook that holds one pointer needs no memory.
  call.on_tile = [&hook](const Tile& /*tile*/) {
    if (std::this_thread::get_id() != hook.caller || base::now() < hook.next) return;
    hook.poll_step();
    hook.group.show_product();
    hook.next = base::now() + kPollInterval;
  };
  gemm.run(call);
}

void sum_rows(const ConstTensorView& grad_out, const TensorView& to, bool accumulate, int threads) {
  base::parallel_for((to.cols + kBlock - 1) / kBlock, threads, [&](std::int64_t block) {
    const std::int64_t begin = block * kBlock;
    const std::int64_t end = std::min(begin + kBlock, to.cols);
    sum_block(grad_out.column_range(begin, end), to.column_range(begin, end), accumulate);
  });
}

}  // namespace plait::nn
