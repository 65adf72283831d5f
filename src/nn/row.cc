// The row layer: ranks share its inputs.
#include "nn/linear.h"
#include "nn/row_exchange.h"

namespace plait {
namespace {

class Row final : public Linear {
 public:
  Row(const LinearDesc& desc, Communicator& comm, const LinearOptions& options)
      : Linear(Shared::inputs, desc, comm, options) {}

  void forward(const LinearForward& call, LinearState* state) override {
    if (state != nullptr) forget(*state);
    check(call);
    const Operator op =
        is_sharded() ? Operator::matmul_reduce_scatter : Operator::matmul_all_reduce;
    const auto multiply = is_sharded() ? matmul_reduce_scatter : matmul_all_reduce;
    call_operator(desc_of(op, call.x.rows, {call.x, call.weight, call.out}), Direction::forward,
                  [&](OpOptions& options) {
                    options.bias = call.bias;
                    multiply(call.x, call.weight, call.out, comm(), options);
                  });
    if (state != nullptr) remember(*state, call.x.rows);
  }

  void backward(const LinearBackward& call, const LinearState* state) override {
    const std::int64_t rows = check(call, state);
    run([&] {
      const ConstTensorView grad_out = multiply_back(call, rows);
      if (makes_weight(call)) add_weight_gradient(call, grad_out, gathered_of(call, state), [] {});
      if (makes_bias(call)) add_bias_gradient(call, grad_out);
    });
  }

 private:
  // Makes grad_x, and returns grad_out for weight and bias: all of its rows, where they need it.
  ConstTensorView multiply_back(const LinearBackward& call, std::int64_t rows) {
    const bool needs_all = makes_weight(call) || makes_bias(call);
    const bool gathers = is_sharded() && comm().world() > 1;
    ConstTensorView result = call.grad_out;
    TensorView all;
    if (gathers && needs_all) {
      // A collective alone writes rows without gaps.
      const Dtype dtype = call.grad_out.dtype;
      const std::int64_t outputs = desc().outputs;
      const std::int64_t stride = makes_x(call, rows) ? stride_of(dtype, outputs) : outputs;
      all = workspace().gathered(
          {.dtype = dtype, .rows = rows, .cols = outputs, .row_stride = stride});
      result = all;
    }
    if (!makes_x(call, rows)) {
      if (gathers && needs_all) nn::start_gathering(call.grad_out, all, comm()).wait();
    } else if (!gathers) {
      matmul(call.grad_out, backward_weight(call), call.grad_x, comm(), product_options());
    } else {
      const Weight weight = backward_weight(call);
      call_operator(
          desc_of(Operator::all_gather_matmul, rows, {call.grad_out, weight, call.grad_x}),
          Direction::backward, [&](OpOptions& options) {
            options.gathered = all;
            all_gather_matmul(call.grad_out, weight, call.grad_x, comm(), options);
          });
    }
    return result;
  }
};

}  // namespace

std::unique_ptr<Linear> make_row(const LinearDesc& desc, Communicator& comm,
                                 const LinearOptions& options) {
  return std::make_unique<Row>(desc, comm, options);
}

}  // namespace plait
