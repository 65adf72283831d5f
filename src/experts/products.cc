#include "experts/products.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/parallel.h"
#include "comm/core/executor.h"
#include "plait/trace.h"
#include "tensor/room.h"

namespace plait::experts {
namespace {

// Between two polls.
constexpr base::Nanoseconds kPollInterval = 50 * base::kMicrosecond;

// Rows that are multiplied at once: what is between the two products takes no more memory than that,
// and the weights are read from memory once for so many rows.
constexpr std::int64_t kMostRowsAtOnce = 2048;

// The usual number of rows of an expert. A constant, since a backend may be chosen by it: bits must
// not depend on the number of ranks.
constexpr std::int64_t kUsualRows = 16;

GemmDesc desc_of(const ExpertsDesc& desc, std::int64_t n, std::int64_t k, Dtype out) {
  return {.m = kUsualRows,
          .n = n,
          .k = k,
          .x = desc.dtype,
          .weight = desc.weight.scheme ? Dtype::s8 : desc.weight.dtype,
          .out = out,
          .quant = desc.weight.scheme};
}

std::int64_t outputs(const ExpertsDesc& desc) { return outputs_of(desc.activation, desc.inner); }

template <class View>
std::span<const View> some(std::span<const View> all, std::int64_t first, std::size_t count) {
  return all.empty() ? all : all.subspan(static_cast<std::size_t>(first), count);
}

}  // namespace

Products::Products(const ExpertsDesc& desc, const ExpertsOptions& options, const comm::Group& group)
    : desc_(desc),
      threads_(options.threads),
      group_(group),
      up_(select_grouped_gemm(desc_of(desc, outputs(desc), desc.hidden, Dtype::f32),
                              {.backend = options.backend, .threads = options.threads})),
      down_(select_grouped_gemm(desc_of(desc, desc.hidden, desc.inner, desc.wire),
                                {.backend = options.backend, .threads = options.threads})) {}

void Products::multiply(const Rows& rows, PollStep poll_step) {
  std::int64_t group = 0;
  std::int64_t done = 0;  // of the group's rows
  std::int64_t row = 0;
  while (row < rows.x.rows) {
    counts_.clear();
    std::int64_t left = kMostRowsAtOnce;
    const std::int64_t first_group = group;
    while (left > 0 && group < std::ssize(rows.counts)) {
      const std::int64_t count =
          std::min(left, rows.counts[static_cast<std::size_t>(group)] - done);
      counts_.push_back(count);
      left -= count;
      done += count;
      if (done < rows.counts[static_cast<std::size_t>(group)]) break;
      ++group;
      done = 0;
    }
    const std::int64_t end = row + kMostRowsAtOnce - left;
    const std::size_t distance =
        static_cast<std::size_t>(rows.x.row_stride) * size_of(rows.x.dtype);
    multiply_part({.first_group = rows.first_group + first_group,
                   .counts = counts_,
                   .x = rows.x.row_range(row, end),
                   .weights = rows.weights == nullptr
                                  ? nullptr
                                  : rows.weights + static_cast<std::size_t>(row) * distance,
                   .out = rows.out.row_range(row, end)},
                  poll_step);
    row = end;
  }
}

void Products::multiply_part(const Rows& part, PollStep poll_step) {
  const std::int64_t rows = part.x.rows;
  const std::int64_t columns = outputs(desc_);
  tensor::make_room(outputs_, static_cast<std::size_t>(rows * columns) * sizeof(float));
  tensor::make_room(inputs_, static_cast<std::size_t>(rows * desc_.inner) * size_of(desc_.dtype));
  const TensorView first = outputs_.view(Dtype::f32, rows, columns);
  const TensorView second = inputs_.view(desc_.dtype, rows, desc_.inner);
  run(up_,
      {.x = part.x,
       .rows = part.counts,
       .weights = some(call_->up, part.first_group, part.counts.size()),
       .out = first,
       .biases = some(call_->up_biases, part.first_group, part.counts.size())},
      poll_step);
  if (comm::product_executor(group_) == nullptr) {
    const Span span(group_.trace(), Lane::compute, "activation",
                    {.bytes = static_cast<std::int64_t>(first.bytes() + second.bytes())});
    const std::size_t distance =
        static_cast<std::size_t>(part.x.row_stride) * size_of(part.x.dtype);
    base::parallel_for(rows, threads_, [&](std::int64_t row) {
      float weight = 1;
      if (part.weights != nullptr)
        std::memcpy(&weight, part.weights + static_cast<std::size_t>(row) * distance,
                    sizeof(weight));
      activate({.kind = desc_.activation, .alpha = desc_.alpha, .limit = desc_.limit},
               static_cast<const float*>(first.row(row)),
               part.weights == nullptr ? nullptr : &weight, second.row_range(row, row + 1));
    });
  }
  poll_step();
  run(down_,
      {.x = second,
       .rows = part.counts,
       .weights = some(call_->down, part.first_group, part.counts.size()),
       .out = part.out,
       .biases = some(call_->down_biases, part.first_group, part.counts.size())},
      poll_step);
}

void Products::run(GroupedGemm& gemm, const GroupedGemmCall& call, PollStep poll_step) const {
  const GemmDesc& desc = gemm.desc();
  const Span span(group_.trace(), Lane::compute, "product",
                  {.flops = 2 * call.x.rows * desc.n * desc.k});
  if (comm::Executor* const executor = comm::product_executor(group_)) {
    for (const std::int64_t rows : call.rows) {
      if (rows == 0) continue;
      executor->multiply({.rows = rows,
                          .columns = desc.n,
                          .k = desc.k,
                          .x_bytes = static_cast<double>(size_of(desc.x)),
                          .weight_bytes = desc.quant ? desc.quant->bits / 8.0
                                                     : static_cast<double>(size_of(desc.weight)),
                          .out_bytes = static_cast<double>(size_of(desc.out)),
                          .poll = kPollInterval},
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
