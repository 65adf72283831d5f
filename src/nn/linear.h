// The base of both layers: sizes, ranks to share a weight with, and a plan for each operator.
#pragma once

#include <memory>
#include <string_view>

#include "base/function_ref.h"
#include "nn/gradients.h"
#include "nn/linear_checks.h"
#include "nn/workspace.h"
#include "plait/linear.h"

namespace plait {

class Linear {
 public:
  Linear(const Linear&) = delete;
  Linear& operator=(const Linear&) = delete;
  virtual ~Linear() = default;

  virtual void forward(const LinearForward& call, LinearState* state) = 0;
  virtual void backward(const LinearBackward& call, const LinearState* state) = 0;

  Communicator& communicator() const { return comm_; }

 protected:
  // Which size of the weight the ranks share out.
  enum class Shared { outputs, inputs };

  Linear(Shared shared, const LinearDesc& desc, Communicator& comm, LinearOptions options);

  Communicator& comm() const { return comm_; }
  const LinearOptions& options() const { return options_; }
  const LinearDesc& desc() const { return desc_; }
  nn::Workspace& workspace() const { return nn::Workspace::of(comm_); }

  // True if rows are shared out on the side of the layer where the weight is not.
  bool is_sharded() const { return options_.sequence_parallel; }
  // True if gathered_of() is all rows of x; otherwise it is this rank's, and backward gathers.
  bool has_gathered(const LinearState* state) const;
  static ConstTensorView gathered_of(const LinearBackward& call, const LinearState* state);
  TensorView room_for_gathered(LinearState& state, Dtype dtype, std::int64_t rows) const;
  // The distance between rows that an operator gathers.
  std::int64_t stride_of(Dtype dtype, std::int64_t cols) const;
  static void forget(LinearState& state) {
    state.rows_ = -1;
    state.keeps_ = false;
  }
  static void remember(LinearState& state, std::int64_t rows) { state.rows_ = rows; }

  // The results that a call of so many rows makes. A result that is empty on all ranks is not asked
  // for: a rank could not tell its own empty share from none.
  bool makes_x(const LinearBackward& call, std::int64_t rows) const {
    return nn::is_given(call.grad_x) && rows > 0 && whole_.inputs > 0;
  }
  bool makes_weight(const LinearBackward& call) const {
    return nn::is_given(call.grad_weight) && whole_.outputs > 0 && whole_.inputs > 0;
  }
  static bool makes_bias(const LinearBackward& call) { return nn::is_given(call.grad_bias); }

  // For a product of grad_out with the weight; refuses where there is none that could be taken.
  Weight backward_weight(const LinearBackward& call) const;

  // Refuse what can't be done, before anything is. A backward's gives the rows of all ranks.
  void check(const LinearForward& call) const;
  std::int64_t check(const LinearBackward& call, const LinearState* state) const;

  // The direction in which an operator of a call multiplies.
  enum class Direction { forward, backward };
  struct OpTensors {
    ConstTensorView x;
    Weight weight;
    TensorView out;
  };
  static OpDesc desc_of(Operator op, std::int64_t rows, const OpTensors& operands);

  // Calls an operator in the plan that these sizes get; a source that measures hears how long it
  // has taken.
  using OperatorCall = base::FunctionRef<void(OpOptions& options)>;
  void call_operator(const OpDesc& desc, Direction direction, OperatorCall call) const;
  OpOptions product_options() const;

  // The dtype in which partial sums of a product with such operands travel.
  Dtype wire_of(Dtype x) const;

  // Runs what has been checked: what fails in it on one rank fails on all. A Pending that `body`
  // starts outlives it, so that its destructor finds the group ended and doesn't wait.
  void run(base::FunctionRef<void()> body) const;

  void add_weight_gradient(const LinearBackward& call, const ConstTensorView& grad_out,
                           const ConstTensorView& x, nn::PollStep poll_step) const;
  void add_bias_gradient(const LinearBackward& call, const ConstTensorView& grad_out) const;

 private:
  std::string_view layer_name() const;
  PlanKey key_of(const OpDesc& desc, Direction direction) const;
  std::int64_t rows_of(const LinearBackward& call, const LinearState* state) const;
  void check_weight(const Weight& weight, const nn::WantedWeight& wanted) const;
  void check_sizes() const;
  void check_operators() const;
  void agree();
  void check_backend(const LinearBackward& call, const LinearState* state, std::int64_t rows) const;

  Shared shared_;
  LinearDesc desc_;
  Communicator& comm_;
  LinearOptions options_;
  nn::Sizes whole_ = {};  // of all ranks together
};

std::unique_ptr<Linear> make_column(const LinearDesc& desc, Communicator& comm,
                                    const LinearOptions& options);
std::unique_ptr<Linear> make_row(const LinearDesc& desc, Communicator& comm,
                                 const LinearOptions& options);

}  // namespace plait
