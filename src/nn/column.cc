// The column layer: ranks share its outputs.
#include <optional>

#include "nn/linear.h"
#include "nn/row_exchange.h"
#include "ops/op_checks.h"
#include "tensor/copy_rows.h"

namespace plait {
namespace {

class Column final : public Linear {
 public:
  Column(const LinearDesc& desc, Communicator& comm, const LinearOptions& options)
      : Linear(Shared::outputs, desc, comm, options) {}

  void forward(const LinearForward& call, LinearState* state) override {
    if (state != nullptr) forget(*state);
    check(call);
    const std::int64_t rows = is_sharded() ? call.out.rows : call.x.rows;
    if (is_sharded()) {
      forward_sharded(call, state);
    } else {
      OpOptions options = product_options();
      options.bias = call.bias;
      matmul(call.x, call.weight, call.out, comm(), options);
    }
    if (state != nullptr) remember(*state, rows);
  }

  void backward(const LinearBackward& call, const LinearState* state) override {
    const std::int64_t rows = check(call, state);
    UnderWay under_way;
    run([&] { run_backward(call, state, rows, under_way); });
  }

 private:
  // The collectives beside the products of a backward.
  struct UnderWay {
    std::optional<Pending> gathering;
    std::optional<Pending> summing;
  };

  void forward_sharded(const LinearForward& call, LinearState* state) {
    const bool keeps = state != nullptr && !options().recompute_all_gather && comm().world() > 1;
    const OpDesc desc =
        desc_of(Operator::all_gather_matmul, call.out.rows, {call.x, call.weight, call.out});
    TensorView gathered;
    if (keeps) {
      // Sizes that the operator would refuse must not become memory first.
      ops::check(desc, product_options());
      ops::check(desc, {.x = call.x, .weight = call.weight, .out = call.out, .bias = call.bias},
                 {comm().rank(), comm().world()});
      run([&] { gathered = room_for_gathered(*state, call.x.dtype, call.out.rows); });
    }
    call_operator(desc, Direction::forward, [&](OpOptions& options) {
      options.bias = call.bias;
      options.gathered = gathered;
      all_gather_matmul(call.x, call.weight, call.out, comm(), options);
    });
  }

  // Nothing is left for a reduction to run beside, or it is not wanted there, or no collective
  // could do it: collectives have no s8 wire.
  bool reduces_in_operator(const LinearBackward& call) const {
    return options().column_backward || !makes_weight(call) || comm().world() == 1 ||
           wire_of(call.grad_out.dtype) == Dtype::s8;
  }

  void run_backward(const LinearBackward& call, const LinearState* state, std::int64_t rows,
                    UnderWay& under_way) {
    std::optional<Pending>& gathering = under_way.gathering;
    std::optional<Pending>& summing = under_way.summing;
    const bool in_operator = reduces_in_operator(call);
    const bool needs_x = makes_weight(call);
    ConstTensorView x = gathered_of(call, state);
    if (needs_x && !has_gathered(state)) {
      // A collective writes rows without gaps.
      const std::int64_t inputs = desc().inputs;
      const TensorView all = workspace().gathered({
          .dtype = x.dtype,
          .rows = rows,
          .cols = inputs,
      });
      gathering.emplace(
          nn::start_gathering(x, all, in_operator ? workspace().beside(comm()) : comm()));
      x = all;
    }
    // Needs nothing that travels, and doesn't look after it: x is under way, and no sum yet.
    if (makes_bias(call)) add_bias_gradient(call, call.grad_out);
    PollHook poll;
    if (gathering) poll = [&gathering] { gathering->progress(); };
    TensorView sum;
    if (makes_x(call, rows) && in_operator) {
      make_grad_x(call, rows, poll);
    } else if (makes_x(call, rows)) {
      const TensorView partial = make_partial(call, rows, poll);
      if (gathering) gathering->wait();
      sum = place_of_sum(call);
      summing.emplace(nn::start_summing(partial, sum, what_is_summed(), comm()));
    }
    if (gathering) gathering->wait();
    if (needs_x) {
      add_weight_gradient(call, call.grad_out, x, [&summing] {
        if (summing) summing->progress();
      });
    }
    if (!summing) return;
    summing->wait();
    if (sum.data != call.grad_x.data) tensor::copy_rows(sum, call.grad_x);
  }

  nn::Sum what_is_summed() const { return is_sharded() ? nn::Sum::shard : nn::Sum::all; }

  // A collective writes rows without gaps.
  TensorView place_of_sum(const LinearBackward& call) const {
    const TensorView& to = call.grad_x;
    return to.is_contiguous() ? to : workspace().summed(to.dtype, to.rows, to.cols);
  }

  // This rank's part of grad_x, as it is to travel.
  TensorView make_partial(const LinearBackward& call, std::int64_t rows, const PollHook& poll) {
    const TensorView partial =
        workspace().partial(wire_of(call.grad_out.dtype), rows, desc().inputs);
    OpOptions options = product_options();
    options.poll = poll;
    // This product and its sum must have the bits of the operator that they replace.
    if (partial.dtype == Dtype::f32) options.shares = comm().world();
    matmul(call.grad_out, backward_weight(call), partial, comm(), options);
    return partial;
  }

  void make_grad_x(const LinearBackward& call, std::int64_t rows, const PollHook& poll) {
    const Weight weight = backward_weight(call);
    const Operator op =
        is_sharded() ? Operator::matmul_reduce_scatter : Operator::matmul_all_reduce;
    const auto multiply = is_sharded() ? matmul_reduce_scatter : matmul_all_reduce;
    call_operator(desc_of(op, rows, {call.grad_out, weight, call.grad_x}), Direction::backward,
                  [&](OpOptions& options) {
                    options.poll = poll;
                    multiply(call.grad_out, weight, call.grad_x, comm(), options);
                  });
  }
};

}  // namespace

std::unique_ptr<Linear> make_column(const LinearDesc& desc, Communicator& comm,
                                    const LinearOptions& options) {
  return std::make_unique<Column>(desc, comm, options);
}

}  // namespace plait
