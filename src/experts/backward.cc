#include "experts/backward.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "experts/checks.h"
#include "experts/combine.h"
#include "experts/products.h"
#include "nn/gradients.h"
#include "plait/trace.h"
#include "tensor/kernels.h"
#include "tensor/room.h"

namespace plait::experts {
namespace {

ExpertExchange::Shape shape_of(const ExpertsDesc& desc) {
  const auto bytes_of = [&](Dtype dtype) {
    return desc.hidden * static_cast<std::int64_t>(size_of(dtype));
  };
  return {.rows = {.shared_bytes = 2 * bytes_of(desc.dtype),
                   .has_weights = true,
                   .result_bytes = bytes_of(desc.wire) + static_cast<std::int64_t>(sizeof(float)),
                   .top = desc.top * desc.parts,
                   .parts = desc.parts},
          .gathered_bytes = 0};
}

// How many parts' outputs of the first product are one after another in those of a whole expert.
std::int64_t shares_of_outputs(const ExpertsDesc& desc) {
  return desc.activation == ExpertActivation::swiglu ? 1 : desc.parts;
}

std::vector<Weight> turned(std::span<const Weight> weights, std::span<const Weight> given) {
  if (!given.empty()) return {given.begin(), given.end()};
  std::vector<Weight> all;
  for (const Weight& weight : weights) all.emplace_back(weight.view().turned());
  return all;
}

void fill_with_zeros(const TensorView& to) {
  for (std::int64_t row = 0; row < to.rows; ++row) std::memset(to.row(row), 0, to.row_bytes());
}

}  // namespace

Backward::Backward(const ExpertsDesc& desc, const ExpertsOptions& options,
                   const Placement& placement, Communicator::State& state)
    : desc_(desc),
      options_(options),
      state_(state),
      placement_(placement),
      exchange_(state, placement, shape_of(desc)),
      up_(select_product(desc, options, {.n = outputs(), .k = desc.hidden, .out = Dtype::f32})),
      turned_down_(
          select_product(desc, options, {.n = desc.inner, .k = desc.hidden, .out = Dtype::f32})),
      turned_up_(select_product(desc, options,
                                {.n = desc.hidden,
                                 .k = outputs(),
                                 .out = desc.wire,
                                 .shares = shares_of_outputs(desc)})) {}

std::size_t Backward::held_bytes() const {
  return exchange_.held_bytes() + up_.held_bytes() + turned_down_.held_bytes() +
         turned_up_.held_bytes() + workspace_.bytes() + inputs_.bytes() + grads_.bytes() +
         outputs_.bytes() + backs_.bytes();
}

void Backward::prepare(const Tag& tag, const ExpertsBackward& call) {
  call_ = &call;
  up_turned_ = turned(call.forward.up, call.turned_up);
  down_turned_ = turned(call.forward.down, call.turned_down);
  down_biases_ = used_biases(call.forward.down_biases, placement_, state_.group().rank());
  exchange_.prepare(tag);
}

void Backward::run(const Tag& tag, overlap::PollHook& poll) {
  overlap::run_call(state_, tag, poll, [&](const Tag& numbered) {
    exchange_.run(numbered,
                  {.rows = call_->forward.x.rows,
                   .ids = call_->forward.ids,
                   .fused = options_.schedule == Schedule::fused,
                   .whole_groups = true},
                  *this, poll);
    collect();
  });
}

void Backward::write_row(std::int64_t row, std::byte* to) const {
  const auto bytes = static_cast<std::size_t>(x_bytes());
  std::memcpy(to, call_->forward.x.row(row), bytes);
  std::memcpy(to + bytes, call_->grad_out.row(row), bytes);
}

void Backward::multiply(const RowStore& store, const Work& work, PollStep poll_step) {
  tensor::make_room(inputs_,
                    static_cast<std::size_t>(store.rows() * desc_.inner) * size_of(desc_.dtype));
  tensor::make_room(grads_,
                    static_cast<std::size_t>(store.rows() * outputs()) * size_of(desc_.dtype));
  for_each_piece(work.counts, [&](const Piece& piece) {
    multiply_piece(store,
                   {.first_group = work.first_group + piece.first_group,
                    .counts = piece.counts,
                    .begin = work.begin + piece.begin,
                    .end = work.begin + piece.end},
                   poll_step);
  });
}

void Backward::multiply_piece(const RowStore& store, const Part& part, PollStep poll_step) {
  const std::int64_t count = part.end - part.begin;
  tensor::make_room(outputs_, static_cast<std::size_t>(count * outputs()) * sizeof(float));
  tensor::make_room(backs_, static_cast<std::size_t>(count * desc_.inner) * sizeof(float));
  const auto groups = part.counts.size();
  experts::multiply(up_,
                    {.x = x_of(store).row_range(part.begin, part.end),
                     .rows = part.counts,
                     .weights = of_groups(call_->forward.up, part.first_group, groups),
                     .out = outputs_.view(Dtype::f32, count, outputs()),
                     .biases = of_groups(call_->forward.up_biases, part.first_group, groups)},
                    state_.group(), poll_step);
  experts::multiply(
      turned_down_,
      {.x = grads_of(store).row_range(part.begin, part.end),
       .rows = part.counts,
       .weights = of_groups(std::span<const Weight>(down_turned_), part.first_group, groups),
       .out = backs_.view(Dtype::f32, count, desc_.inner)},
      state_.group(), poll_step);
  activate_rows(store, part);
  poll_step();
  experts::multiply(
      turned_up_,
      {.x = grads_.view(desc_.dtype, store.rows(), outputs()).row_range(part.begin, part.end),
       .rows = part.counts,
       .weights = of_groups(std::span<const Weight>(up_turned_), part.first_group, groups),
       .out = store.result_part(desc_.wire, desc_.hidden).row_range(part.begin, part.end)},
      state_.group(), poll_step);
}

// Makes h, du, and the gradients of the rows' weights.
void Backward::activate_rows(const RowStore& store, const Part& part) {
  const Span span(state_.group().trace(), Lane::compute, "activation", {});
  const TensorView inputs = inputs_.view(desc_.dtype, store.rows(), desc_.inner);
  const TensorView grads = grads_.view(desc_.dtype, store.rows(), outputs());
  const std::int64_t count = part.end - part.begin;
  const ConstTensorView first = outputs_.view(Dtype::f32, count, outputs());
  const ConstTensorView backs = backs_.view(Dtype::f32, count, desc_.inner);
  const TensorView to = store.result_part(Dtype::s8, sizeof(float), sums_bytes());
  std::vector<std::int64_t> ends;
  for (const std::int64_t rows : part.counts)
    ends.push_back((ends.empty() ? 0 : ends.back()) + rows);
  base::parallel_for(count, options_.threads, [&](std::int64_t i) {
    const std::int64_t row = part.begin + i;
    const float of_activation =
        activate_back(activation_of(desc_),
                      {.from = static_cast<const float*>(first.row(i)),
                       .grad = static_cast<const float*>(backs.row(i)),
                       .weight = weight_of(weights_of(store), row)},
                      inputs.row_range(row, row + 1), grads.row_range(row, row + 1));
    const auto group = std::upper_bound(ends.begin(), ends.end(), i) - ends.begin();
    const float gradient =
        tensor::with_one_nan(weight_gradient(store, row, part.first_group + group, of_activation));
    std::memcpy(to.row(row), &gradient, sizeof(gradient));
  });
}

// Results have a bias, which weights multiply too if they are multiplied at the sum.
float Backward::weight_gradient(const RowStore& store, std::int64_t row, std::int64_t group,
                                float of_activation) const {
  if (desc_.weights_at == ExpertWeightsAt::activation || down_biases_.empty()) return of_activation;
  const ConstTensorView& bias = down_biases_[static_cast<std::size_t>(group)];
  if (bias.data == nullptr) return of_activation;
  constexpr std::int64_t kBlock = 256;
  std::array<float, kBlock> one;
  std::array<float, kBlock> other;
  const TensorView grad = grads_of(store).row_range(row, row + 1);
  float sum = 0;
  for (std::int64_t begin = 0; begin < desc_.hidden; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, desc_.hidden);
    const auto count = static_cast<std::size_t>(end - begin);
    convert(grad.column_range(begin, end).data, grad.dtype, one.data(), Dtype::f32, count);
    convert(bias.column_range(begin, end).data, bias.dtype, other.data(), Dtype::f32, count);
    for (std::size_t i = 0; i < count; ++i) sum += one[i] * other[i];
  }
  return of_activation + sum;
}

// The gradients of experts, each a sum over an expert's rows in their order, while results travel.
void Backward::finish(const RowStore& store, std::span<const std::int64_t> counts,
                      PollStep poll_step) {
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    poll_step();
    if (counts[i] > 0) {
      add_gradients(store, {.index = i, .begin = begin, .end = begin + counts[i]}, poll_step);
    } else if (!call_->accumulate) {
      for (const auto& grads :
           {call_->grad_up, call_->grad_down, call_->grad_up_biases, call_->grad_down_biases}) {
        if (!grads.empty()) fill_with_zeros(grads[i]);
      }
    }
    begin += counts[i];
  }
}

void Backward::add_gradients(const RowStore& store, const Expert& expert, PollStep poll_step) {
  const auto rows_of = [&](const TensorView& all) {
    return all.row_range(expert.begin, expert.end);
  };
  const auto add = [&](const ConstTensorView& grad_out, const ConstTensorView& x,
                       const Weight& weight, const TensorView& to) {
    nn::run({.grad_out = grad_out,
             .x = x,
             .to = to,
             .layout = layout_of(weight),
             .accumulate = call_->accumulate},
            workspace_,
            {.gemm = {.backend = options_.backend, .threads = options_.threads},
             .group = state_.group()},
            poll_step);
  };
  const std::size_t i = expert.index;
  const TensorView inputs = rows_of(inputs_.view(desc_.dtype, store.rows(), desc_.inner));
  const TensorView grads = rows_of(grads_.view(desc_.dtype, store.rows(), outputs()));
  if (!call_->grad_up.empty())
    add(grads, rows_of(x_of(store)), call_->forward.up[i], call_->grad_up[i]);
  if (!call_->grad_down.empty())
    add(rows_of(grads_of(store)), inputs, call_->forward.down[i], call_->grad_down[i]);
  if (!call_->grad_up_biases.empty())
    nn::sum_rows(grads, call_->grad_up_biases[i], call_->accumulate, options_.threads);
  if (call_->grad_down_biases.empty()) return;
  const bool is_used = placement_.experts_of(state_.group().rank())[i] % desc_.parts == 0;
  sum_down_bias(store, is_used ? expert : Expert{.index = i, .begin = 0, .end = 0},
                call_->grad_down_biases[i]);
}

void Backward::sum_down_bias(const RowStore& store, const Expert& rows,
                             const TensorView& to) const {
  const auto count = static_cast<std::size_t>(to.cols);
  std::vector<float> sum(count, 0.0F);
  std::vector<float> value(count);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const bool is_weighted = desc_.weights_at == ExpertWeightsAt::combine;
    const float weight = is_weighted ? weight_of(weights_of(store), row) : 1.0F;
    convert(grads_of(store).row(row), desc_.dtype, value.data(), Dtype::f32, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += weight * value[i];
  }
  if (call_->accumulate) {
    convert(to.data, to.dtype, value.data(), Dtype::f32, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += value[i];
  }
  for (float& one : sum) one = tensor::with_one_nan(one);
  convert(sum.data(), Dtype::f32, to.data, to.dtype, count);
}

// All results are here: adds up those of a row's slots.
void Backward::collect() {
  const std::span<const void* const> results = exchange_.results();
  const auto parts = static_cast<std::size_t>(desc_.parts);
  for (std::size_t slot = 0; slot < call_->grad_weights.size(); ++slot) {
    float sum = 0;
    for (const void* const result : results.subspan(slot * parts, parts)) {
      if (result == nullptr) continue;
      float gradient;
      std::memcpy(&gradient, static_cast<const std::byte*>(result) + sums_bytes(),
                  sizeof(gradient));
      sum = tensor::with_one_nan(sum + gradient);
    }
    call_->grad_weights[slot] = sum;
  }
  if (call_->grad_x.data == nullptr) return;
  const Span span(state_.group().trace(), Lane::compute, "combine", {});
  combine({.results = results,
           .dtype = desc_.wire,
           .weights = nullptr,
           .top = desc_.top,
           .parts = desc_.parts},
          call_->grad_x, options_.threads);
}

}  // namespace plait::experts
