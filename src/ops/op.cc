// An operator ready to run.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/default_floats.h"
#include "base/parallel.h"
#include "comm/session/gather.h"
#include "comm/session/state.h"
#include "ops/busy.h"
#include "ops/call_parts.h"
#include "ops/family_plan.h"
#include "ops/op_checks.h"
#include "ops/planned_op.h"
#include "ops/shapes.h"
#include "overlap/device.h"
#include "plait/buffer.h"

namespace plait {
namespace {

// Alone in the world, a rank has only the wire's rounding to do besides the product.
bool needs_no_peer(const OpDesc& desc, Dtype wire, const Communicator& comm) {
  const bool rounds = traits_of(desc.op).shares_k && wire != Dtype::f32;
  return !traits_of(desc.op).communicates() || (comm.world() == 1 && !rounds);
}

Gemm select_for(Operator op, const GemmDesc& desc, const GemmOptions& options) try {
  return select_gemm(desc, options);
} catch (const Error& error) {
  throw ops::in_words_of(name(op), error);
}

// A size of all ranks, of which this one has `own`.
std::int64_t sum_of_shares(std::int64_t own, Communicator& comm) {
  const std::vector<std::int64_t> shares = comm::gather_values(own, comm);
  return std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
}

// The whole sizes, of which each rank has a share. The caller knows of no collective before the
// operator.
//
// Ranks can't remember the sum by their own shares: of 9 columns rank 0 has 5 and rank 1 has 4, and
// of 10 both have 5. In the first call with 10, rank 0 would skip an exchange that rank 1 waits
// for.
ops::WholeSizes whole_sizes(const OpDesc& desc, Communicator& comm, const OpOptions& options) try {
  ops::WholeSizes whole = {.n = desc.n, .k = desc.k};
  const auto whole_of = [&](std::int64_t own) {
    return options.whole_size >= 0 ? options.whole_size : sum_of_shares(own, comm);
  };
  const OperatorTraits& traits = traits_of(desc.op);
  if (traits.shares_n) whole.n = whole_of(whole.n);
  if (traits.shares_k) whole.k = whole_of(whole.k);
  return whole;
} catch (const Error& error) {
  if (comm.state().group().was_interrupted()) throw;
  throw ops::in_words_of(
      base::sentence(name(desc.op), ": while ranks add up their sizes, for the choice of a plan"),
      error);
}

}  // namespace

namespace ops {

PlanKey key_of(const OpDesc& desc, const WholeSizes& whole, const KeyPlace& place) {
  return key_in({.op = desc.op,
                 .m = desc.m,
                 .n = whole.n,
                 .k = whole.k,
                 .x = desc.x,
                 .weight = name(desc.weight),
                 .out = desc.out,
                 .wire = wire_of(desc.op, desc.x, place.options.wire, place.comm.state().hosts()),
                 .threads = place.options.threads,
                 .backend = place.options.backend},
                place.comm);
}

PlanKey key_of(const OpDesc& desc, Communicator& comm, const OpOptions& options) {
  return key_of(desc, whole_sizes(desc, comm, options), {.comm = comm, .options = options});
}

bool asks_for_plans(const OpDesc& desc, const OpOptions& options) {
  return !options.plan && options.plans != nullptr && desc.device == kCpu;
}

Plan plan_for(const OpDesc& desc, Communicator& comm, const OpOptions& options) {
  if (options.plan) return *options.plan;
  if (!asks_for_plans(desc, options)) return default_plan(desc.op);
  const base::DefaultFloats floats;  // predictions decide it, which ranks must agree upon
  return checked(desc.op, options.plans->find(key_of(desc, comm, options)));
}

Plan checked(Operator op, const std::optional<Plan>& found) {
  if (!found) return default_plan(op);
  check(*found, name(op));
  return followed_by(op, *found);
}

namespace {

std::unique_ptr<overlap::OpImpl> make_impl(overlap::OpSpec spec, Communicator& comm) {
  return is_compute_first(spec.problem.op) ? overlap::make_compute_first(std::move(spec), comm)
                                           : overlap::make_comm_first(std::move(spec), comm);
}

}  // namespace

OpRunner::OpRunner(const OpDesc& desc, Communicator& comm, const OpOptions& options)
    : desc_(desc),
      comm_(comm),
      state_(comm.state()),
      options_({.wire = options.wire, .threads = options.threads, .backend = options.backend}) {
  const Dtype wire = wire_of(desc.op, desc.x, options.wire, state_.hosts());
  const overlap::Problem problem = {.op = desc.op,
                                    .m = desc.m,
                                    .n = desc.n,
                                    .k = desc.k,
                                    .x = desc.x,
                                    .wire = wire,
                                    .out = desc.out,
                                    .gathered = desc.gathered,
                                    .device = desc.device};
  if (desc.device != kCpu) {
    const overlap::DeviceOpSpec spec = {.problem = problem,
                                        .weight = desc.weight,
                                        .shares = options.shares,
                                        .backend = options.backend};
    make([&] { impl_ = overlap::make_on_device(spec, comm); });
    return;
  }
  const bool alone = needs_no_peer(desc, wire, comm);
  // Partial sums leave the product as they travel, or before they are coded for the wire; whatever
  // else leaves it is the result.
  const Dtype product =
      traits_of(desc.op).shares_k && !alone ? plan::partial_dtype(wire) : desc.out;
  Gemm gemm = select_for(desc.op,
                         {.m = count(multiplied_rows(desc.op), desc.m, comm.rank(), comm.world()),
                          .n = desc.n,
                          .k = desc.k,
                          .x = desc.x,
                          .weight = desc.weight.scheme ? Dtype::bf16 : desc.weight.dtype,
                          .out = product,
                          .quant = desc.weight.scheme,
                          .shares = shares_of(desc.op, wire, comm.world(), options.shares)},
                         {.backend = options.backend, .threads = options.threads});
  overlap::OpSpec spec = {.problem = problem,
                          .threads = base::thread_count(options.threads),
                          .gemm = std::move(gemm),
                          .group = &comm.state().group()};
  make([&] {
    impl_ = alone ? overlap::make_plain(std::move(spec)) : make_impl(std::move(spec), comm);
    bias_ = Buffer(static_cast<std::size_t>(desc.n) * sizeof(float));
  });
}

// Makes an object that one rank alone may fail to make, when all the others have.
template <class Make>
void OpRunner::make(Make&& make) {
  try {
    make();
  } catch (const Error& error) {
    tell_shortage(name(desc_.op), error, comm_);
    throw in_words_of(name(desc_.op), error);
  } catch (const std::exception& error) {  // of lists of parts and chunks, as long as a plan says
    tell_shortage(name(desc_.op), Error(Code::system, error.what()), comm_);
    throw;  // never: all hear of it
  }
}

// Alone there is nothing that a product could hide.
Plan OpRunner::followed(const Plan& plan) const {
  return comm_.world() == 1 ? Plan{.schedule = Schedule::serial} : plan;
}

void OpRunner::make_room(std::int64_t m, const Plan& plan) {
  make([&] { impl_->make_room(m, followed(plan)); });
}

void OpRunner::fit(std::int64_t m, const Plan& plan) {
  make([&] { impl_->fit(m, followed(plan)); });
}

// A timeline tells by these which operators a program has (plait tune --from), and how long each
// call took. It has no marks of a device, where a call's work begins and ends at other times.
Trace* OpRunner::trace() const { return desc_.device == kCpu ? state_.group().trace() : nullptr; }

void OpRunner::mark_call(std::int64_t m) {
  Trace* trace = this->trace();
  if (trace == nullptr) return;
  if (m != problem_rows_) {
    OpDesc desc = desc_;
    desc.m = m;
    const PlanKey key =
        key_of(desc, {.n = desc.n, .k = desc.k}, {.comm = comm_, .options = options_});
    problem_ = "call " + name(key);
    problem_rows_ = m;
  }
  trace->mark(Lane::compute, trace->intern(problem_));
}

void OpRunner::mark_return() {
  if (Trace* trace = this->trace(); trace != nullptr) trace->mark(Lane::compute, "return");
}

void OpRunner::set_up(const OpCall& call, std::int64_t m, const Plan& plan) {
  const Busy busy(state_, name(desc_.op));
  const PollHook poll = hook_of(name(desc_.op), call.poll);
  const comm::PollHookInWaits in_waits(state_.group(), name(desc_.op), poll);
  fit(m, plan);
}

void OpRunner::run(const OpCall& call, std::int64_t m, const Plan& plan) try {
  const Busy busy(state_, name(desc_.op));
  const PollHook poll = hook_of(name(desc_.op), call.poll);
  const comm::PollHookInWaits in_waits(state_.group(), name(desc_.op), poll);
  fit(m, plan);
  mark_call(m);
  const float* bias = nullptr;
  if (call.bias.data != nullptr && call.bias.cols > 0 && desc_.device == kCpu) {
    convert(call.bias.data, call.bias.dtype, bias_.data(), Dtype::f32,
            static_cast<std::size_t>(call.bias.cols));
    bias = reinterpret_cast<const float*>(bias_.data());
  }
  impl_->run({.operands = {.x = counted(call.x), .weight = call.weight, .bias = call.bias},
              .out = counted(call.out),
              .bias = bias,
              .gathered = counted(call.gathered),
              .poll = poll ? &poll : nullptr,
              .stream = call.stream});
  state_.group().finish_sending();
  mark_return();
} catch (const Error& error) {
  // If ranks are in different calls, all get the error of the rank that noticed, which names its
  // call. Any other error has this operator's name, or comes from its poll hook.
  if (error.code() != Code::mismatch) throw;
  throw in_words_of(name(desc_.op), error);
}

std::int64_t rows_of(Operator op, const OpCall& call) {
  return shapes_of(op).x == Rows::all ? call.x.rows : call.out.rows;
}

namespace {

// Plans for m, m/2, m/4, ... rows, from the options or their source.
std::vector<Plan> plans_for(OpDesc desc, Communicator& comm, const OpOptions& options) {
  if (!asks_for_plans(desc, options)) return {plan_for(desc, comm, options)};
  PlanKey key = key_of(desc, comm, options);
  const base::DefaultFloats floats;  // predictions decide it, which ranks must agree upon
  std::vector<Plan> plans;
  do {
    plans.push_back(checked(desc.op, options.plans->find(key)));
    key.m /= 2;
  } while (key.m > 0);
  return plans;
}

}  // namespace

PlannedOp::PlannedOp(const OpDesc& desc, Communicator& comm, const OpOptions& options)
    : runner_(desc, comm, options), plans_(plans_for(desc, comm, options)) {
  std::int64_t m = desc.m;
  for (const Plan& plan : plans_) {
    runner_.make_room(m, plan);
    m /= 2;
  }
  runner_.fit(desc.m, plans_.front());
}

const Plan& PlannedOp::plan_of(std::int64_t m) const {
  std::size_t halvings = 0;
  for (std::int64_t most = desc().m; halvings + 1 < plans_.size() && m <= most / 2; most /= 2)
    ++halvings;
  return plans_[halvings];
}

void PlannedOp::run(const OpCall& call) {
  const std::int64_t m = rows_of(desc().op, call);
  runner_.run(call, m, plan_of(m));
}

}  // namespace ops

class Op::State {
 public:
  State(const OpDesc& desc, Communicator& comm, const OpOptions& options)
      : prepared_(desc, comm, options),
        comm_(comm),
        wire_(ops::wire_of(desc.op, desc.x, options.wire, comm.state().hosts())),
        standing_{comm.rank(), comm.world()} {}

  const ops::PlannedOp& prepared() const { return prepared_; }

  SumTree sum_tree() const {
    const OpDesc& desc = prepared_.desc();
    const SumTree mine = plait::sum_tree(desc, comm_.world(), wire_);
    const bool shares_k = traits_of(desc.op).shares_k && comm_.world() > 1;
    if (!shares_k || wire_ != Dtype::f32 || all_have(desc.k)) return mine;
    return {"the ranks' shares of k differ"};
  }

  void run(const OpCall& call) {
    ops::check(ops::of_as_many_rows(prepared_.desc(), call), call, standing_);
    prepared_.run(call);
  }

 private:
  // True if the shares of k of all ranks are equal. A rank knows only its own.
  bool all_have(std::int64_t k) const try {
    const std::vector<std::int64_t> shares = comm::gather_values(k, comm_);
    return std::all_of(shares.begin(), shares.end(),
                       [&](std::int64_t share) { return share == k; });
  } catch (const Error& error) {
    throw ops::in_words_of(
        base::sentence(name(prepared_.desc().op), ": where ranks compare their shares of k"),
        error);
  }

  ops::PlannedOp prepared_;
  Communicator& comm_;
  Dtype wire_;
  ops::Standing standing_;
};

Op::Op(std::unique_ptr<State> state) : state_(std::move(state)) {}
Op::Op(Op&&) noexcept = default;
Op& Op::operator=(Op&&) noexcept = default;
Op::~Op() = default;

Op::State& Op::state() const {
  PLAIT_CHECK(state_, "this operator was moved to another Op, which runs it");
  return *state_;
}

const OpDesc& Op::desc() const { return state().prepared().desc(); }
const Plan& Op::plan() const { return state().prepared().plan(); }
SumTree Op::sum_tree() const { return state().sum_tree(); }
std::size_t Op::held_bytes() const { return state().prepared().held_bytes(); }
void Op::run(const OpCall& call) { state().run(call); }

Op prepare(const OpDesc& desc, Communicator& comm, const OpOptions& options) {
  ops::check(desc, options);
  ops::check_prepares(name(desc.op), options);
  return Op(std::make_unique<Op::State>(desc, comm, options));
}

}  // namespace plait
