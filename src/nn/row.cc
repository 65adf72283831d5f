// The row layer: ranks share its inputs.
#include "nn/linear.h"
#include "nn/rows.h"

namespace plait {
namespace {

class Row final : public Linear {
 public:
  Row(const LinearWeight& weight, Communicator& comm, const LinearOptions& options)
      : Linear(Shared::inputs, weight, comm, options) {}

  void forward(const LinearForward& call, LinearState* state) override {
    if (state != nullptr) forget(*state);
    OpDesc desc = {.op = Operator::matmul_all_reduce,
                   .m = call.x.rows,
                   .x = call.x.dtype,
                   .out = call.out.dtype};
    if (is_sharded()) desc.op = Operator::matmul_reduce_scatter;
    const auto multiply = is_sharded() ? matmul_reduce_scatter : matmul_all_reduce;
    call_operator(desc, Direction::forward, [&](const OpOptions& options) {
      multiply(call.x, weight(), call.out, comm(), {.bias = call.bias, .options = options});
    });
    if (state != nullptr) remember(*state, call.x, call.x.rows);
  }

  void backward(const LinearBackward& call, const LinearState& state) override {
    check(call, state);
    run([&] {
      const ConstTensorView grad_out = multiply_back(call, state);
      if (makes_weight(call)) add_weight_gradient(call, grad_out, gathered_of(state), [] {});
      if (makes_bias(call)) add_bias_gradient(call, grad_out);
    });
  }

 private:
  // Makes grad_x, and returns grad_out for weight and bias: all of its rows, where they need it.
  ConstTensorView multiply_back(const LinearBackward& call, const LinearState& state) {
    const std::int64_t rows = rows_of(state);
    const bool needs_all = makes_weight(call) || makes_bias(call);
    const bool gathers = is_sharded() && comm().world() > 1;
    ConstTensorView result = call.grad_out;
    TensorView all;
    if (gathers && needs_all) {
      // A collective alone writes rows without gaps.
      const Dtype dtype = call.grad_out.dtype;
      const std::int64_t outputs = sizes().outputs;
      const std::int64_t stride = makes_x(call, state) ? stride_of(dtype, outputs) : outputs;
      all = workspace().gathered(
          {.dtype = dtype, .rows = rows, .cols = outputs, .row_stride = stride});
      result = all;
    }
    if (!makes_x(call, state)) {
      if (gathers && needs_all) nn::start_gathering(call.grad_out, all, comm()).wait();
    } else if (!gathers) {
      matmul(call.grad_out, backward_weight(), call.grad_x, comm(), {.options = product_options()});
    } else {
      const OpDesc desc = {.op = Operator::all_gather_matmul,
                           .m = rows,
                           .x = call.grad_out.dtype,
                           .out = call.grad_x.dtype};
      call_operator(desc, Direction::backward, [&](const OpOptions& options) {
        all_gather_matmul(call.grad_out, backward_weight(), call.grad_x, comm(),
                          {.gathered = all, .options = options});
      });
    }
    return result;
  }
};

}  // namespace

std::unique_ptr<Linear> make_row(const LinearWeight& weight, Communicator& comm,
                                 const LinearOptions& options) {
  return std::make_unique<Row>(weight, comm, options);
}

}  // namespace plait
