// The layers of sequence parallelism by all-to-all.
#include "plait/ulysses_layers.h"

#include <optional>
#include <utility>

#include "base/check.h"
#include "comm/session/state.h"
#include "nn/gradients.h"
#include "nn/linear_checks.h"
#include "nn/workspace.h"
#include "ops/shapes.h"
#include "tensor/validate.h"
#include "ulysses/columns.h"

namespace plait {
namespace {

constexpr const char* kQKV = "UlyssesQKV";
constexpr const char* kOutput = "UlyssesOutput";

void check_desc(const char* layer, const UlyssesDesc& desc, const UlyssesOptions& options) {
  PLAIT_CHECK(desc.inputs >= 0 && desc.outputs >= 0, layer, ": inputs=", desc.inputs,
              " outputs=", desc.outputs);
  PLAIT_CHECK(!nn::is_given(options.bias) && !nn::is_given(options.gathered) && !options.poll,
              layer, ": a bias, gathered rows and a poll hook belong to single calls");
}

void check_matrix(const char* layer, const char* what, const ConstTensorView& view,
                  std::int64_t rows, std::int64_t cols) {
  tensor::validate_on_cpu(view, base::sentence(layer, ": ", what));
  PLAIT_CHECK(view.rows == rows && view.cols == cols, layer, ": ", what, " is ", view.rows, " x ",
              view.cols, ", not ", rows, " x ", cols);
}

void check_weight(const char* layer, const Weight& weight, const nn::Sizes& sizes) {
  PLAIT_CHECK(weight.n() == sizes.outputs && weight.k() == sizes.inputs, layer,
              ": weight has n=", weight.n(), " k=", weight.k(), ", not n=", sizes.outputs,
              " k=", sizes.inputs);
}

// The weight with which backward multiplies grad_out.
Weight turned_weight(const char* layer, const UlyssesDesc& desc, const LinearBackward& call) {
  const auto found = [&]() -> std::optional<Weight> {
    if (call.turned) return call.turned;
    if (call.weight && !call.weight->is_packed()) return call.weight->view().turned();
    return {};
  }();
  if (!found) {
    base::fail(Code::invalid_argument, layer, ": grad_x needs a plain weight, or the turned one");
  }
  check_weight(layer, *found, {.outputs = desc.inputs, .inputs = desc.outputs});
  return *found;
}

// `wanted` says what differs between the layers; the weight is the whole one in both.
void check_backward(const char* layer, const UlyssesDesc& desc, const LinearBackward& call,
                    nn::Wanted wanted) {
  wanted.sizes = {.outputs = desc.outputs, .inputs = desc.inputs};
  wanted.layout = desc.layout;
  nn::check_backward(layer, call, wanted);
  if (nn::is_given(call.grad_x)) static_cast<void>(turned_weight(layer, desc, call));
}

std::int64_t own_columns(const char* layer, const UlyssesDesc& desc, std::int64_t of,
                         const Communicator& comm) {
  ulysses::check(layer, desc.columns, of, comm.world());
  return ulysses::count_of(desc.columns[static_cast<std::size_t>(comm.rank())]);
}

// Gathers own rows without a product: the weight has no outputs.
void gather_rows(const ConstTensorView& x, const UlyssesDesc& desc, const TensorView& rows,
                 Communicator& comm, UlyssesOptions options) {
  options.gathered = rows;
  const WeightView nothing = {
      .view = {.dtype = x.dtype, .rows = 0, .cols = rows.cols, .row_stride = rows.cols},
      .layout = WeightLayout::out_in};
  const TensorView none = {.dtype = x.dtype, .rows = rows.rows, .cols = 0};
  all_to_all_matmul(x, nothing, desc.columns, none, comm, options);
}

void add_weight_gradient(const UlyssesDesc& desc, const LinearBackward& call,
                         const ConstTensorView& grad_out, const ConstTensorView& x,
                         Communicator& comm, const UlyssesOptions& options) {
  if (desc.inputs == 0 || desc.outputs == 0) return;
  nn::run({.grad_out = grad_out,
           .x = x,
           .to = call.grad_weight,
           .layout = desc.layout,
           .accumulate = call.accumulate},
          nn::Workspace::of(comm),
          {.gemm = {.backend = options.backend, .threads = options.threads},
           .group = comm.state().group()},
          [] {});
}

}  // namespace

UlyssesQKV::UlyssesQKV(UlyssesDesc desc, Communicator& comm, UlyssesOptions options)
    : desc_(std::move(desc)), comm_(&comm), options_(std::move(options)) {
  check_desc(kQKV, desc_, options_);
}

void UlyssesQKV::forward(const LinearForward& call) {
  check_weight(kQKV, call.weight, {.outputs = desc_.outputs, .inputs = desc_.inputs});
  UlyssesOptions options = options_;
  options.bias = call.bias;
  matmul_all_to_all(call.x, call.weight, desc_.columns, call.out, *comm_, options);
}

void UlyssesQKV::backward(const LinearBackward& call) {
  const Communicator::State::Use use(comm_->state());
  const std::int64_t own = ops::share_of(call.grad_out.rows, comm_->rank(), comm_->world());
  const bool makes_weight = nn::is_given(call.grad_weight);
  check_backward(
      kQKV, desc_, call,
      {.grad_out_rows = call.grad_out.rows,
       .x_rows = own,
       .needs_x = makes_weight,
       .sizes = {},
       .layout = {},
       .columns = nn::Sizes{own_columns(kQKV, desc_, desc_.outputs, *comm_), desc_.inputs}});
  TensorView rows;
  if (makes_weight || nn::is_given(call.grad_bias)) {
    rows = nn::Workspace::of(*comm_).gathered(
        {.dtype = call.grad_out.dtype, .rows = own, .cols = desc_.outputs});
  }
  if (nn::is_given(call.grad_x)) {
    UlyssesOptions options = options_;
    options.gathered = rows;
    all_to_all_matmul(call.grad_out, turned_weight(kQKV, desc_, call), desc_.columns, call.grad_x,
                      *comm_, options);
  } else if (makes_weight || nn::is_given(call.grad_bias)) {
    gather_rows(call.grad_out, desc_, rows, *comm_, options_);
  }
  if (makes_weight) add_weight_gradient(desc_, call, rows, call.x, *comm_, options_);
  if (nn::is_given(call.grad_bias))
    nn::sum_rows(rows, call.grad_bias, call.accumulate, options_.threads);
}

UlyssesOutput::UlyssesOutput(UlyssesDesc desc, Communicator& comm, UlyssesOptions options)
    : desc_(std::move(desc)), comm_(&comm), options_(std::move(options)) {
  check_desc(kOutput, desc_, options_);
}

void UlyssesOutput::forward(const LinearForward& call, UlyssesState* state) {
  const Communicator::State::Use use(comm_->state());
  check_weight(kOutput, call.weight, {.outputs = desc_.outputs, .inputs = desc_.inputs});
  UlyssesOptions options = options_;
  options.bias = call.bias;
  if (state != nullptr) {
    state->rows_ = {};
    check_matrix(kOutput, "out", call.out,
                 ops::share_of(call.x.rows, comm_->rank(), comm_->world()), desc_.outputs);
    options.gathered = nn::room_in(
        state->memory_, {.dtype = call.x.dtype, .rows = call.out.rows, .cols = desc_.inputs});
  }
  all_to_all_matmul(call.x, call.weight, desc_.columns, call.out, *comm_, options);
  if (state != nullptr) state->rows_ = options.gathered;
}

void UlyssesOutput::backward(const LinearBackward& call, const UlyssesState* state) {
  const Communicator::State::Use use(comm_->state());
  const bool makes_weight = nn::is_given(call.grad_weight);
  ConstTensorView rows;
  if (state != nullptr) {
    PLAIT_CHECK(state->rows_.dtype != kNoDtype, kOutput,
                ": backward was given a state of no forward");
    rows = state->rows_;
    PLAIT_CHECK(rows.cols == desc_.inputs, kOutput,
                ": backward was given the state of another layer, whose weight has ", rows.cols,
                " inputs, not ", desc_.inputs);
    PLAIT_CHECK(rows.rows == call.grad_out.rows, kOutput, ": grad_out has ", call.grad_out.rows,
                " rows and forward had ", rows.rows);
  }
  const ConstTensorView whole = nn::is_given(call.grad_x) ? call.grad_x : call.x;
  const std::int64_t own = nn::is_given(whole)
                               ? ops::share_of(whole.rows, comm_->rank(), comm_->world())
                               : call.grad_out.rows;
  check_backward(
      kOutput, desc_, call,
      {.grad_out_rows = own,
       .x_rows = whole.rows,
       .needs_x = makes_weight && state == nullptr,
       .sizes = {},
       .layout = {},
       .columns = nn::Sizes{desc_.outputs, own_columns(kOutput, desc_, desc_.inputs, *comm_)}});
  if (nn::is_given(call.grad_x)) {
    matmul_all_to_all(call.grad_out, turned_weight(kOutput, desc_, call), desc_.columns,
                      call.grad_x, *comm_, options_);
  }
  if (makes_weight && state == nullptr) {
    const TensorView again = nn::Workspace::of(*comm_).gathered(
        {.dtype = call.x.dtype, .rows = call.grad_out.rows, .cols = desc_.inputs});
    gather_rows(call.x, desc_, again, *comm_, options_);
    rows = again;
  }
  if (makes_weight) add_weight_gradient(desc_, call, call.grad_out, rows, *comm_, options_);
  if (nn::is_given(call.grad_bias))
    nn::sum_rows(call.grad_out, call.grad_bias, call.accumulate, options_.threads);
}

}  // namespace plait
