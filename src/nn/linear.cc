#include "nn/linear.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/parallel.h"
#include "comm/core/interruption.h"
#include "comm/session/gather.h"
#include "comm/session/state.h"
#include "nn/row_exchange.h"
#include "ops/op_cache.h"
#include "ops/op_checks.h"
#include "ops/planned_op.h"
#include "ops/shapes.h"
#include "plait/gemm.h"
#include "quant/scheme.h"

namespace plait {
namespace {

constexpr std::string_view kColumn = "ColumnParallelLinear";
constexpr std::string_view kRow = "RowParallelLinear";

// The properties that the ranks of a layer compare.
struct Share {
  std::int64_t outputs;
  std::int64_t inputs;
  std::int64_t row;  // the layer's kind
  std::int64_t sequence_parallel;
  std::int64_t column_backward;
  std::int64_t recompute;
  std::array<char, 32> weight;  // its kind, as a text
  std::array<char, 32> turned;  // the same of that for grad_x; empty: there is none
};

}  // namespace

Linear::Linear(Shared shared, const LinearDesc& desc, Communicator& comm, LinearOptions options)
    : shared_(shared), desc_(desc), comm_(comm), options_(std::move(options)) {
  check_sizes();
  check_operators();
  agree();
}

void Linear::check_sizes() const {
  for (const auto& [size, what] :
       {std::pair{desc_.inputs, "inputs"}, std::pair{desc_.outputs, "outputs"}}) {
    PLAIT_CHECK(size >= 0 && size <= std::int64_t{1} << 42, layer_name(), ": ", what, "=", size,
                " is not between 0 and 2^42");
  }
  quant::check_layout(desc_.layout, base::sentence(layer_name(), ": grad_weight"));
}

// Refuses, in its own name and before ranks wait for one another, everything that its operators
// would refuse.
void Linear::check_operators() const try {
  const OpOptions& options = options_.operators;
  base::check_threads(options.threads, layer_name());
  const std::vector<GemmChoice> backends = explain_gemm({.m = 1, .n = 1, .k = 1});
  const bool is_known = std::any_of(backends.begin(), backends.end(), [&](const GemmChoice& one) {
    return one.backend == options.backend;
  });
  PLAIT_CHECK(is_known || options.backend.empty(), layer_name(), ": there is no backend ",
              options.backend);
  ops::check_prepares(layer_name(), options);
  PLAIT_CHECK(options.shares == 1, layer_name(), ": shares=", options.shares,
              "; only matmul is told of shares, and a layer counts those of its ranks itself");
  PLAIT_CHECK(options.whole_size == -1, layer_name(), ": whole_size=", options.whole_size,
              "; a layer adds up its ranks' shares itself, once");
  OpDesc any = {.op = Operator::matmul,
                .m = 0,
                .n = desc_.outputs,
                .k = desc_.inputs,
                .weight = desc_.weight};
  OpOptions usable = options;
  usable.plan = {};
  ops::check(any, usable);
  any.weight = desc_.turned.value_or(desc_.weight);
  ops::check(any, usable);
  if (options.plan) plait::check(*options.plan, layer_name());
} catch (const Error& error) {
  throw ops::in_words_of(layer_name(), error);
}

std::string_view Linear::layer_name() const { return shared_ == Shared::outputs ? kColumn : kRow; }

// Ranks that make different layers notice here, and not in the middle of a step.
void Linear::agree() {
  Share own = {.outputs = desc_.outputs,
               .inputs = desc_.inputs,
               .row = shared_ == Shared::inputs ? 1 : 0,
               .sequence_parallel = options_.sequence_parallel ? 1 : 0,
               .column_backward = options_.column_backward ? 1 : 0,
               .recompute = options_.recompute_all_gather ? 1 : 0,
               .weight = {},
               .turned = {}};
  name(desc_.weight).copy(own.weight.data(), own.weight.size() - 1);
  if (desc_.turned) name(*desc_.turned).copy(own.turned.data(), own.turned.size() - 1);
  const std::vector<Share> shares = comm::gather_values(own, comm_);
  const Share& first = shares.front();
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    const Share& one = shares[rank];
    const auto agree_on = [&](const char* what, std::int64_t Share::* field) {
      if (one.*field == first.*field) return;
      base::fail(Code::mismatch, layer_name(), ": rank ", rank, " has ", what, "=", one.*field,
                 " and rank 0 has ", first.*field);
    };
    agree_on("row_parallel", &Share::row);
    agree_on("sequence_parallel", &Share::sequence_parallel);
    agree_on("column_backward", &Share::column_backward);
    agree_on("recompute_all_gather", &Share::recompute);
    if (one.weight != first.weight) {
      base::fail(Code::mismatch, layer_name(), ": rank ", rank, " has a weight of ",
                 one.weight.data(), " and rank 0 of ", first.weight.data());
    }
    if (one.turned != first.turned) {
      const auto said = [](const Share& share) {
        return share.turned[0] == 0 ? "none" : share.turned.data();
      };
      base::fail(Code::mismatch, layer_name(), ": rank ", rank,
                 " has as turned weight: ", said(one), "; and rank 0: ", said(first));
    }
    if (shared_ == Shared::outputs) agree_on("inputs", &Share::inputs);
    if (shared_ == Shared::inputs) agree_on("outputs", &Share::outputs);
    whole_.outputs += one.outputs;
    whole_.inputs += one.inputs;
  }
  (shared_ == Shared::outputs ? whole_.inputs : whole_.outputs) =
      shared_ == Shared::outputs ? desc_.inputs : desc_.outputs;
}

Weight Linear::backward_weight(const LinearBackward& call) const {
  if (desc_.turned) {
    PLAIT_CHECK(call.turned, layer_name(), ": grad_x takes a turned weight of ",
                name(*desc_.turned), ", and the call has none");
    return *call.turned;
  }
  PLAIT_CHECK(call.weight, layer_name(), ": grad_x takes the weight, and the call has none");
  PLAIT_CHECK(!call.weight->is_packed(), layer_name(),
              ": grad_x takes the weight the other way round, and a packed one can't be turned: "
              "make the layer for a `turned` weight, and give it too");
  return call.weight->view().turned();
}

bool Linear::has_gathered(const LinearState* state) const {
  const bool shards_x = shared_ == Shared::outputs && options_.sequence_parallel;
  return !shards_x || comm_.world() == 1 || (state != nullptr && state->keeps_);
}

ConstTensorView Linear::gathered_of(const LinearBackward& call, const LinearState* state) {
  return state != nullptr && state->keeps_ ? state->all_ : call.x;
}

OpDesc Linear::desc_of(Operator op, std::int64_t rows, const OpTensors& operands) {
  return {.op = op,
          .m = rows,
          .n = operands.weight.n(),
          .k = operands.weight.k(),
          .x = operands.x.dtype,
          .weight = operands.weight.kind(),
          .out = operands.out.dtype};
}

std::int64_t Linear::stride_of(Dtype dtype, std::int64_t cols) const {
  return options_.aligned_packing ? nn::spaced(dtype, cols) : cols;
}

TensorView Linear::room_for_gathered(LinearState& state, Dtype dtype, std::int64_t rows) const {
  const std::int64_t inputs = desc_.inputs;
  const TensorView all = nn::room_in(
      state.gathered_,
      {.dtype = dtype, .rows = rows, .cols = inputs, .row_stride = stride_of(dtype, inputs)});
  state.all_ = all;
  state.keeps_ = true;
  return all;
}

void Linear::check_weight(const Weight& weight, const nn::WantedWeight& wanted) const try {
  ops::check_usable(Operator::matmul, weight, kCpu);
  nn::check_weight(layer_name(), weight, wanted);
} catch (const Error& error) {
  throw ops::in_words_of(layer_name(), error);
}

void Linear::check(const LinearForward& call) const {
  check_weight(call.weight,
               {.what = "weight", .n = desc_.outputs, .k = desc_.inputs, .kind = desc_.weight});
}

// Rows of all ranks together, from the state, the call, or operands that have all of them.
std::int64_t Linear::rows_of(const LinearBackward& call, const LinearState* state) const {
  PLAIT_CHECK(call.rows >= -1, layer_name(), ": backward has rows=", call.rows);
  if (state != nullptr) {
    PLAIT_CHECK(state->rows_ >= 0, layer_name(), ": backward was given a state of no forward");
    PLAIT_CHECK(!state->keeps_ || state->gathered_.data() == state->all_.data, layer_name(),
                ": backward was given a state that was moved to another");
    PLAIT_CHECK(call.rows == -1 || call.rows == state->rows_, layer_name(),
                ": backward has rows=", call.rows, " but its forward had ", state->rows_);
    return state->rows_;
  }
  if (call.rows >= 0) return call.rows;
  if (shared_ == Shared::outputs || !options_.sequence_parallel) return call.grad_out.rows;
  if (nn::is_given(call.x)) return call.x.rows;
  PLAIT_CHECK(nn::is_given(call.grad_x), layer_name(),
              ": backward can't tell how many rows all ranks have together: its grad_out is a "
              "shard, and there is neither x, nor grad_x, nor rows, nor a state");
  return call.grad_x.rows;
}

std::int64_t Linear::check(const LinearBackward& call, const LinearState* state) const {
  const std::int64_t rows = rows_of(call, state);
  PLAIT_CHECK(rows >= 0, layer_name(), ": backward has ", rows, " rows");
  const Range shard = nn::shard_of(rows, comm_);
  const std::int64_t own = is_sharded() ? shard.end - shard.begin : rows;
  const bool column = shared_ == Shared::outputs;
  const auto [inputs, outputs] = std::pair{desc_.inputs, desc_.outputs};
  const bool has_kept = state != nullptr && state->keeps_;
  PLAIT_CHECK(!has_kept || state->all_.cols == inputs, layer_name(),
              ": backward was given the state of another layer, whose x has ", state->all_.cols,
              " columns, not ", inputs);
  if (call.weight) {
    check_weight(*call.weight, {.what = "weight", .n = outputs, .k = inputs, .kind = desc_.weight});
  }
  if (call.turned) {
    PLAIT_CHECK(desc_.turned, layer_name(), ": a turned weight was given to a layer made for none");
    check_weight(*call.turned,
                 {.what = "turned", .n = inputs, .k = outputs, .kind = *desc_.turned});
  }
  nn::check_backward(layer_name(), call,
                     {.grad_out_rows = column ? rows : own,
                      .x_rows = column ? own : rows,
                      .needs_x = makes_weight(call) && !has_kept,
                      .sizes = {.outputs = outputs, .inputs = inputs},
                      .layout = desc_.layout});
  if (nn::is_given(call.grad_x)) static_cast<void>(backward_weight(call));
  if (!options_.operators.backend.empty()) check_backend(call, state, rows);
  return rows;
}

// Backward's products may have other dtypes than forward's, and not every backend takes them. What
// is found stays at hand.
void Linear::check_backend(const LinearBackward& call, const LinearState* state,
                           std::int64_t rows) const {
  const GemmOptions options = {.backend = options_.operators.backend,
                               .threads = options_.operators.threads};
  if (nn::is_given(call.grad_x)) {
    const WeightKind kind = backward_weight(call).kind();
    workspace().gemm({.m = rows,
                      .n = desc_.inputs,
                      .k = desc_.outputs,
                      .x = call.grad_out.dtype,
                      .weight = kind.scheme ? Dtype::bf16 : kind.dtype,
                      .out = call.grad_x.dtype,
                      .quant = kind.scheme},
                     options);
  }
  if (nn::is_given(call.grad_weight)) {
    const bool out_in = desc_.layout == WeightLayout::out_in;
    const Dtype x = gathered_of(call, state).dtype;
    workspace().gemm({.m = call.grad_weight.rows,
                      .n = call.grad_weight.cols,
                      .k = rows,
                      .x = out_in ? call.grad_out.dtype : x,
                      .weight = out_in ? x : call.grad_out.dtype,
                      .out = call.grad_weight.dtype},
                     options);
  }
}

OpOptions Linear::product_options() const {
  OpOptions options = options_.operators;
  options.plan = {};
  options.plans = nullptr;
  return options;
}

Dtype Linear::wire_of(Dtype x) const {
  return ops::wire_of(Operator::matmul_all_reduce, x, options_.operators.wire,
                      comm_.state().hosts());
}

PlanKey Linear::key_of(const OpDesc& desc, Direction direction) const {
  const bool back = direction == Direction::backward;
  const ops::WholeSizes whole = {.n = back ? whole_.inputs : whole_.outputs,
                                 .k = back ? whole_.outputs : whole_.inputs};
  return ops::key_of(desc, whole, {.comm = comm_, .options = options_.operators});
}

void Linear::call_operator(const OpDesc& desc, Direction direction, OperatorCall call) const {
  OpOptions options = product_options();
  const PlanSource* const plans = options_.operators.plans;
  if (options_.operators.plan) options.plan = followed_by(desc.op, *options_.operators.plan);
  if (options.plan || plans == nullptr) return call(options);
  ops::OpCache::of(comm_).ask(*plans, key_of(desc, direction), [&](const Plan& plan) {
    options.plan = plan;
    call(options);
  });
}

void Linear::run(base::FunctionRef<void()> body) const {
  const comm::Interruption interruption;
  // A communicator that was split off this one may have been interrupted: this one ends with it.
  const auto end = [&](auto&& why) {
    if (!interruption.has_come()) return comm_.abort(why());
    comm::Group& group = comm_.state().group();
    group.note_interruption(nullptr);
    group.abort(group.failure());
  };
  try {
    body();
  } catch (const std::exception& error) {
    end([&] { return error.what(); });
    throw;
  } catch (...) {
    end([] { return "something was thrown that is no exception"; });
    throw;
  }
}

void Linear::add_weight_gradient(const LinearBackward& call, const ConstTensorView& grad_out,
                                 const ConstTensorView& x, nn::PollStep poll_step) const {
  const OpOptions& operators = options_.operators;
  nn::run({.grad_out = grad_out,
           .x = x,
           .to = call.grad_weight,
           .layout = desc_.layout,
           .accumulate = call.accumulate},
          workspace(),
          {.gemm = {.backend = operators.backend, .threads = operators.threads},
           .group = comm_.state().group()},
          poll_step);
}

void Linear::add_bias_gradient(const LinearBackward& call, const ConstTensorView& grad_out) const {
  nn::sum_rows(grad_out, call.grad_bias, call.accumulate, options_.operators.threads);
}

}  // namespace plait
