#include "nn/linear.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/parallel.h"
#include "comm/state.h"
#include "nn/rows.h"
#include "ops/checks.h"
#include "ops/kept.h"
#include "ops/prepared.h"
#include "plait/collectives.h"
#include "plait/gemm.h"

namespace plait {
namespace {

constexpr std::string_view kColumn = "ColumnParallelLinear";
constexpr std::string_view kRow = "RowParallelLinear";

// What the ranks of a layer tell one another.
struct Share {
  std::int64_t outputs;
  std::int64_t inputs;
  std::int64_t row;  // the layer's kind
  std::int64_t sequence_parallel;
  std::int64_t column_backward;
  std::int64_t recompute;
  std::array<char, 32> weight;    // its kind, as a text
  std::array<char, 32> backward;  // the same of that for grad_x; empty: there is none
};

std::vector<Share> shares_of(const Share& own, Communicator& comm) {
  std::vector<Share> shares(static_cast<std::size_t>(comm.world()));
  all_gather({&own, sizeof(own), Dtype::s8},
             {shares.data(), shares.size() * sizeof(own), Dtype::s8}, comm);
  return shares;
}

}  // namespace

Linear::Linear(Shared shared, const LinearWeight& weight, Communicator& comm, LinearOptions options)
    : shared_(shared),
      weight_(weight),
      comm_(comm),
      options_(std::move(options)),
      sizes_{.outputs = ops::n_of(weight.weight), .inputs = ops::k_of(weight.weight)} {
  nn::check_weight(who(), weight, sizes_);
  check_operators();
  agree();
}

// What its operators would refuse, in its own name, and before ranks wait for one another.
void Linear::check_operators() const try {
  const OpOptions& options = options_.operators;
  base::check_threads(options.threads, who());
  const std::vector<GemmChoice> backends = explain_gemm({.m = 1, .n = 1, .k = 1});
  const bool is_known = std::any_of(backends.begin(), backends.end(), [&](const GemmChoice& one) {
    return one.backend == options.backend;
  });
  PLAIT_CHECK(is_known || options.backend.empty(), who(), ": there is no backend ",
              options.backend);
  const OpDesc any = {.op = Operator::matmul, .m = 0};
  OpOptions usable = options;
  usable.plan = {};
  ops::check(any, weight_.weight, usable);
  if (weight_.backward) ops::check(any, *weight_.backward, usable);
  if (options.plan) plait::check(*options.plan, who());
} catch (const Error& error) {
  throw ops::in_words_of(who(), error);
}

std::string_view Linear::who() const { return shared_ == Shared::outputs ? kColumn : kRow; }

// Ranks that make different layers notice here, and not in the middle of a step.
void Linear::agree() {
  Share own = {.outputs = sizes_.outputs,
               .inputs = sizes_.inputs,
               .row = shared_ == Shared::inputs ? 1 : 0,
               .sequence_parallel = options_.sequence_parallel ? 1 : 0,
               .column_backward = options_.column_backward ? 1 : 0,
               .recompute = options_.recompute_all_gather ? 1 : 0,
               .weight = {},
               .backward = {}};
  const std::string kind = ops::kind_of(weight_.weight);
  kind.copy(own.weight.data(), own.weight.size() - 1);
  const std::string turned = weight_.backward ? ops::kind_of(*weight_.backward) : "";
  turned.copy(own.backward.data(), own.backward.size() - 1);
  const std::vector<Share> shares = shares_of(own, comm_);
  const Share& first = shares.front();
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    const Share& one = shares[rank];
    const auto agree_on = [&](const char* what, std::int64_t Share::* field) {
      if (one.*field == first.*field) return;
      base::fail(Code::mismatch, who(), ": rank ", rank, " has ", what, "=", one.*field,
                 " and rank 0 has ", first.*field);
    };
    agree_on("row_parallel", &Share::row);
    agree_on("sequence_parallel", &Share::sequence_parallel);
    agree_on("column_backward", &Share::column_backward);
    agree_on("recompute_all_gather", &Share::recompute);
    if (one.weight != first.weight) {
      base::fail(Code::mismatch, who(), ": rank ", rank, " has a weight of ", one.weight.data(),
                 " and rank 0 of ", first.weight.data());
    }
    if (one.backward != first.backward) {
      const auto said = [](const Share& share) {
        return share.backward[0] == 0 ? "none" : share.backward.data();
      };
      base::fail(Code::mismatch, who(), ": rank ", rank, " has as backward weight: ", said(one),
                 "; and rank 0: ", said(first));
    }
    if (shared_ == Shared::outputs) agree_on("inputs", &Share::inputs);
    if (shared_ == Shared::inputs) agree_on("outputs", &Share::outputs);
    whole_.outputs += one.outputs;
    whole_.inputs += one.inputs;
  }
  (shared_ == Shared::outputs ? whole_.inputs : whole_.outputs) =
      shared_ == Shared::outputs ? sizes_.inputs : sizes_.outputs;
}

WeightLayout Linear::layout() const {
  const auto* view = std::get_if<WeightView>(&weight_.weight);
  return view == nullptr ? WeightLayout::out_in : view->layout;
}

OpWeight Linear::backward_weight() const {
  if (weight_.backward) return *weight_.backward;
  const auto* view = std::get_if<WeightView>(&weight_.weight);
  PLAIT_CHECK(view != nullptr, who(),
              ": grad_x takes the weight the other way round, and a packed one can't be turned: "
              "give a packed `backward` weight too");
  return WeightView{
      .view = view->view,
      .layout = view->layout == WeightLayout::out_in ? WeightLayout::in_out : WeightLayout::out_in};
}

bool Linear::has_gathered(const LinearState& state) const {
  const bool shards_x = shared_ == Shared::outputs && options_.sequence_parallel;
  return !shards_x || comm_.world() == 1 || state.keeps_;
}

ConstTensorView Linear::gathered_of(const LinearState& state) const {
  return state.keeps_ ? state.all_ : state.x_;
}

std::int64_t Linear::stride_of(Dtype dtype, std::int64_t cols) const {
  return options_.aligned_packing ? nn::spaced(dtype, cols) : cols;
}

TensorView Linear::room_for_gathered(LinearState& state, Dtype dtype, std::int64_t rows) const {
  const std::int64_t inputs = sizes_.inputs;
  const TensorView all = nn::room_in(
      state.gathered_,
      {.dtype = dtype, .rows = rows, .cols = inputs, .row_stride = stride_of(dtype, inputs)});
  state.all_ = all;
  state.keeps_ = true;
  return all;
}

void Linear::check(const LinearBackward& call, const LinearState& state) const {
  PLAIT_CHECK(state.rows_ >= 0, who(), ": backward was given a state of no forward");
  PLAIT_CHECK(!state.keeps_ || state.gathered_.data() == state.all_.data, who(),
              ": backward was given a state that was moved to another");
  const Range shard = nn::shard_of(state.rows_, comm_);
  const std::int64_t own = is_sharded() ? shard.end - shard.begin : state.rows_;
  const bool column = shared_ == Shared::outputs;
  nn::check_backward(who(), call,
                     {.grad_out_rows = column ? state.rows_ : own,
                      .x_rows = column ? own : state.rows_,
                      .x = state.x_,
                      .sizes = sizes_,
                      .layout = layout(),
                      .weight = weight_});
  if (nn::is_asked(call.grad_x)) static_cast<void>(backward_weight());
  if (!options_.operators.backend.empty()) check_backend(call, state);
}

// Backward's products may have other dtypes than forward's, and not every backend takes them. What
// is found stays at hand.
void Linear::check_backend(const LinearBackward& call, const LinearState& state) const {
  const GemmOptions options = {.backend = options_.operators.backend,
                               .threads = options_.operators.threads};
  if (nn::is_asked(call.grad_x)) {
    const OpWeight weight = backward_weight();
    const auto scheme = ops::scheme_of(weight);
    workspace().gemm({.m = state.rows_,
                      .n = sizes_.inputs,
                      .k = sizes_.outputs,
                      .x = call.grad_out.dtype,
                      .weight = scheme ? Dtype::bf16 : ops::dtype_of(weight),
                      .out = call.grad_x.dtype,
                      .quant = scheme},
                     options);
  }
  if (nn::is_asked(call.grad_weight)) {
    const bool out_in = layout() == WeightLayout::out_in;
    workspace().gemm({.m = call.grad_weight.rows,
                      .n = call.grad_weight.cols,
                      .k = state.rows_,
                      .x = out_in ? call.grad_out.dtype : state.x_.dtype,
                      .weight = out_in ? state.x_.dtype : call.grad_out.dtype,
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

PlanKey Linear::key_of(const OpDesc& desc, Direction direction) const {
  const bool back = direction == Direction::backward;
  const ops::WholeSizes whole = {.n = back ? whole_.inputs : whole_.outputs,
                                 .k = back ? whole_.outputs : whole_.inputs};
  return ops::key_of(desc, ops::plan_kind_of(back ? backward_weight() : weight()), whole,
                     {.comm = comm_, .options = options_.operators});
}

void Linear::call_operator(const OpDesc& desc, Direction direction, OperatorCall call) const {
  OpOptions options = product_options();
  const PlanSource* const plans = options_.operators.plans;
  if (options_.operators.plan) options.plan = followed_by(desc.op, *options_.operators.plan);
  if (options.plan || plans == nullptr) return call(options);
  ops::Kept::of(comm_).ask(*plans, key_of(desc, direction), [&](const Plan& plan) {
    options.plan = plan;
    call(options);
  });
}

void Linear::add_weight_gradient(const LinearBackward& call, const ConstTensorView& grad_out,
                                 const ConstTensorView& x, nn::Look look) const {
  const OpOptions& operators = options_.operators;
  nn::run({.grad_out = grad_out,
           .x = x,
           .to = call.grad_weight,
           .layout = layout(),
           .accumulate = call.accumulate},
          workspace(),
          {.gemm = {.backend = operators.backend, .threads = operators.threads},
           .group = comm_.state().group()},
          look);
}

void Linear::add_bias_gradient(const LinearBackward& call, const ConstTensorView& grad_out) const {
  nn::sum_rows(grad_out, call.grad_bias, call.accumulate, options_.operators.threads);
}

}  // namespace plait
