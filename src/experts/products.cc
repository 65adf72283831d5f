#include "experts/products.h"

#include <cstring>

#include "base/parallel.h"
#include "comm/core/executor.h"
#include "plait/trace.h"
#include "tensor/room.h"

namespace plait::experts {

float weight_of(const ConstTensorView& weights, std::int64_t row) {
  float weight;
  std::memcpy(&weight, weights.row(row), sizeof(weight));
  return weight;
}

Products::Products(const ExpertsDesc& desc, const ExpertsOptions& options, const comm::Group& group)
    : desc_(desc),
      threads_(options.threads),
      group_(group),
      up_(select_product(
          desc, options,
          {.n = outputs_of(desc.activation, desc.inner), .k = desc.hidden, .out = Dtype::f32})),
      down_(select_product(
          desc, options,
          {.n = desc.hidden, .k = desc.inner, .out = desc.wire, .shares = desc.parts})) {}

std::vector<ConstTensorView> used_biases(std::span<const ConstTensorView> biases,
                                         const Placement& placement, int rank) {
  std::vector<ConstTensorView> used(biases.begin(), biases.end());
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (placement.experts_of(rank)[i] % placement.parts() != 0) used[i] = {};
  }
  return used;
}

void Products::multiply(const Rows& rows, PollStep poll_step) {
  for_each_piece(rows.counts, [&](const Piece& piece) {
    multiply_piece(
        {.first_group = rows.first_group + piece.first_group,
         .counts = piece.counts,
         .x = rows.x.row_range(piece.begin, piece.end),
         .weights = rows.weights.data == nullptr ? rows.weights
                                                 : rows.weights.row_range(piece.begin, piece.end),
         .out = rows.out.row_range(piece.begin, piece.end)},
        poll_step);
  });
}

void Products::multiply_piece(const Rows& rows, PollStep poll_step) {
  const std::int64_t count = rows.x.rows;
  const std::int64_t columns = outputs_of(desc_.activation, desc_.inner);
  tensor::make_room(outputs_, static_cast<std::size_t>(count * columns) * sizeof(float));
  tensor::make_room(inputs_, static_cast<std::size_t>(count * desc_.inner) * size_of(desc_.dtype));
  const TensorView first = outputs_.view(Dtype::f32, count, columns);
  const TensorView second = inputs_.view(desc_.dtype, count, desc_.inner);
  experts::multiply(up_,
                    {.x = rows.x,
                     .rows = rows.counts,
                     .weights = of_groups(call_->up, rows.first_group, rows.counts.size()),
                     .out = first,
                     .biases = of_groups(call_->up_biases, rows.first_group, rows.counts.size())},
                    group_, poll_step);
  if (comm::Executor* const executor = comm::product_executor(group_)) {
    executor->run({.label = "activation",
                   .read = static_cast<std::int64_t>(first.bytes()),
                   .written = static_cast<std::int64_t>(second.bytes())});
  } else {
    const Span span(group_.trace(), Lane::compute, "activation",
                    {.bytes = static_cast<std::int64_t>(first.bytes() + second.bytes())});
    const Activation activation = activation_of(desc_);
    base::parallel_for(count, threads_, [&](std::int64_t row) {
      const bool is_weighted = rows.weights.data != nullptr;
      const float weight = is_weighted ? weight_of(rows.weights, row) : 1.0F;
      activate(activation, static_cast<const float*>(first.row(row)),
               is_weighted ? &weight : nullptr, second.row_range(row, row + 1));
    });
  }
  poll_step();
  experts::multiply(down_,
                    {.x = second,
                     .rows = rows.counts,
                     .weights = of_groups(call_->down, rows.first_group, rows.counts.size()),
                     .out = rows.out,
                     .biases = of_groups(std::span<const ConstTensorView>(down_biases_),
                                         rows.first_group, rows.counts.size())},
                    group_, poll_step);
}

}  // namespace plait::experts
