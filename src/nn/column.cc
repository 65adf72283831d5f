// The column layer: ranks share its outputs.
#include <optional>

#include "nn/linear.h"
#include "nn/rows.h"
#include "ops/checks.h"

namespace plait {
namespace {

class Column final : public Linear {
 public:
  Column(const LinearWeight& weight, Communicator& comm, const LinearOptions& options)
      : Linear(Shared::outputs, weight, comm, options) {}

  void forward(const LinearForward& call, LinearState* state) override {
    if (state != nullptr) forget(*state);
    const std::int64_t rows = is_sharded() ? call.out.rows : call.x.rows;
    if (is_sharded()) {
      forward_sharded(call, state);
    } else {
      matmul(call.x, weight(), call.out, comm(), {.bias = call.bias, .options = product_options()});
    }
    if (state != nullptr) remember(*state, call.x, rows);
  }

  void backward(const LinearBackward& call, const LinearState& state) override {
    check(call, state);
    run([&] { run_backward(call, state); });
  }

 private:
  void forward_sharded(const LinearForward& call, LinearState* state) {
    const bool keeps = state != nullptr && !options().recompute_all_gather && comm().world() > 1;
    const OpDesc desc = {.op = Operator::all_gather_matmul,
                         .m = call.out.rows,
                         .x = call.x.dtype,
                         .out = call.out.dtype};
    OpExtras extras = {.bias = call.bias};
    if (keeps) {
      // What the operator would refuse must not become memory first.
      ops::check(desc, weight(), product_options());
      ops::check(desc, weight(), {.x = call.x, .out = call.out, .bias = call.bias},
                 {comm().rank(), comm().world()});
      run([&] { extras.gathered = room_for_gathered(*state, call.x.dtype, call.out.rows); });
    }
    call_operator(desc, Direction::forward, [&](const OpOptions& options) {
      extras.options = options;
      all_gather_matmul(call.x, weight(), call.out, comm(), extras);
    });
  }

  // Nothing is left for a reduction to run beside, or it is not wanted there.
  bool reduces_in_operator(const LinearBackward& call) const {
    return options().column_backward || !makes_weight(call) || comm().world() == 1;
  }

  void run_backward(const LinearBackward& call, const LinearState& state) {
    const bool in_operator = reduces_in_operator(call);
    const bool needs_x = makes_weight(call);
    ConstTensorView x = gathered_of(state);
    std::optional<Pending> gathering;
    if (needs_x && !has_gathered(state)) {
      // A collective writes rows without gaps.
      const std::int64_t inputs = sizes().inputs;
      const TensorView all = workspace().gathered(
          {.dtype = x.dtype, .rows = rows_of(state), .cols = inputs, .row_stride = inputs});
      gathering.emplace(
          nn::start_gathering(x, all, in_operator ? workspace().beside(comm()) : comm()));
      x = all;
    }
    // Needs nothing that travels, and doesn't look after it: x is under way, and no sum yet.
    if (makes_bias(call)) add_bias_gradient(call, call.grad_out);
    Beside beside;
    if (gathering) beside = [&gathering] { gathering->progress(); };
    std::optional<Pending> summing;
    TensorView sum;
    if (makes_x(call, state) && in_operator) {
      make_grad_x(call, rows_of(state), beside);
    } else if (makes_x(call, state)) {
      const TensorView partial = make_partial(call, rows_of(state), beside);
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
    if (sum.data != call.grad_x.data) nn::copy_rows(sum, call.grad_x);
  }

  nn::Sum what_is_summed() const { return is_sharded() ? nn::Sum::shard : nn::Sum::all; }

  // A collective writes rows without gaps.
  TensorView place_of_sum(const LinearBackward& call) const {
    const TensorView& to = call.grad_x;
    return to.is_contiguous() ? to : workspace().summed(to.dtype, to.rows, to.cols);
  }

  // This rank's part of grad_x, as it is to travel.
  TensorView make_partial(const LinearBackward& call, std::int64_t rows, const Beside& beside) {
    const TensorView partial = workspace().partial(options().operators.wire, rows, sizes().inputs);
    matmul(call.grad_out, backward_weight(), partial, comm(),
           {.options = product_options(), .beside = beside});
    return partial;
  }

  void make_grad_x(const LinearBackward& call, std::int64_t rows, const Beside& beside) {
    OpDesc desc = {.op = Operator::matmul_all_reduce,
                   .m = rows,
                   .x = call.grad_out.dtype,
                   .out = call.grad_x.dtype};
    if (is_sharded()) desc.op = Operator::matmul_reduce_scatter;
    const auto multiply = is_sharded() ? matmul_reduce_scatter : matmul_all_reduce;
    call_operator(desc, Direction::backward, [&](const OpOptions& options) {
      multiply(call.grad_out, backward_weight(), call.grad_x, comm(),
               {.options = options, .beside = beside});
    });
  }
};

}  // namespace

std::unique_ptr<Linear> make_column(const LinearWeight& weight, Communicator& comm,
                                    const LinearOptions& options) {
  return std::make_unique<Column>(weight, comm, options);
}

}  // namespace plait
