#include "experts/layer.h"

#include <cstring>
#include <string>

#include "base/check.h"
#include "base/fingerprint.h"
#include "comm/core/executor.h"
#include "experts/combine.h"
#include "ops/busy.h"
#include "ops/call_parts.h"
#include "ops/family_plan.h"
#include "ops/op_checks.h"
#include "plait/trace.h"

namespace plait {
namespace {

using experts::kLayer;

ExpertsDesc checked(const ExpertsDesc& desc, const ExpertsOptions& options,
                    const Communicator& comm) {
  experts::check(desc, options, {.rank = comm.rank(), .world = comm.world()});
  return desc;
}

ExpertsOptions planned(const ExpertsDesc& desc, ExpertsOptions options, Communicator& comm) {
  if (options.plans == nullptr) return options;
  const auto plan = ops::plan_of_family(
      *options.plans,
      {.op = options.replicated ? Operator::matmul_reduce_scatter : Operator::all_gather_matmul,
       .m = desc.top,
       .n = desc.inner,
       .k = desc.hidden,
       .x = desc.dtype,
       .weight = name(desc.weight),
       .out = desc.out,
       .threads = options.threads,
       .backend = options.backend,
       .family = Family::experts,
       .columns = desc.experts * desc.parts},
      comm);
  if (plan) options.schedule = plan->schedule;
  return options;
}

std::int64_t bytes_of(const ExpertsDesc& desc, Dtype dtype) {
  return desc.hidden * static_cast<std::int64_t>(size_of(dtype));
}

// A row of x, and its weight if that is multiplied with the activation.
experts::ExpertExchange::Shape shape_of(const ExpertsDesc& desc) {
  return {.rows = {.shared_bytes = bytes_of(desc, desc.dtype),
                   .has_weights = desc.weights_at == ExpertWeightsAt::activation,
                   .result_bytes = bytes_of(desc, desc.wire),
                   .top = desc.top * desc.parts,
                   .parts = desc.parts},
          .gathered_bytes = bytes_of(desc, desc.out)};
}

std::uint32_t fingerprint_of(const ExpertsDesc& desc, const ExpertsOptions& options,
                             const experts::Placement& placement) {
  const std::string text = base::sentence(
      desc.hidden, ' ', desc.inner, ' ', desc.experts, ' ', desc.top, ' ', desc.parts, ' ',
      name(desc.out), ' ', name(desc.weight), ' ', name(desc.activation), ' ', desc.alpha, ' ',
      desc.limit, ' ', desc.added, ' ', name(desc.weights_at), ' ', name(options.schedule), ' ',
      options.replicated, ' ', options.backend);
  // The last two bits are those of a call, see comm/core/tag.cc.
  return static_cast<std::uint32_t>(base::fingerprint(placement.ranks(), base::fingerprint(text)))
         << 2;
}

// Profiles take the time from a call's mark to that of its return, as with operators. A call that
// throws has no return.
void mark_call(Trace* trace, const char* call, const ExpertsDesc& desc, std::int64_t rows) {
  if (trace == nullptr) return;
  const std::string problem =
      base::sentence(call, " m=", rows, " hidden=", desc.hidden, " inner=", desc.inner,
                     " experts=", desc.experts, " top=", desc.top, " x=", name(desc.dtype));
  trace->mark(Lane::compute, trace->intern(problem));
}

void mark_return(Trace* trace) {
  if (trace != nullptr) trace->mark(Lane::compute, "return");
}

}  // namespace

ExpertParallelMLP::State::State(const ExpertsDesc& desc, Communicator& comm,
                                const ExpertsOptions& options)
    : desc_(checked(desc, options, comm)),
      options_(planned(desc, options, comm)),
      state_(comm.state()),
      placement_({.experts = desc.experts, .parts = desc.parts}, comm.world(), desc.ranks),
      products_(desc, options, comm.state().group()),
      exchange_(comm.state(), placement_, shape_of(desc)),
      fingerprint_(fingerprint_of(desc, options_, placement_)) {}

Tag ExpertParallelMLP::State::tag_of(const ExpertsForward& call) const {
  Tag tag = {.operation = Operation::expert_parallel_mlp,
             .dtype = desc_.dtype,
             .wire = desc_.wire,
             .plan = fingerprint_ | (call.gradients && !options_.replicated ? 1U : 0U),
             .sizes = {desc_.hidden, 0, 0}};
  if (options_.replicated) {
    const std::span<const std::byte> weights = std::as_bytes(call.weights);
    tag.sizes[1] = call.x.rows;
    tag.sizes[2] =
        static_cast<std::uint32_t>(base::fingerprint(weights, base::fingerprint(call.ids)));
  }
  return tag;
}

// Makes what one rank alone may fail to make, when the others go on.
template <class Make>
void ExpertParallelMLP::State::make(Make&& make) {
  try {
    make();
  } catch (const Error& error) {
    ops::tell_shortage(kLayer, error, state_.group());
    throw ops::in_words_of(kLayer, error);
  } catch (const std::exception& error) {
    ops::tell_shortage(kLayer, Error(Code::system, error.what()), state_.group());
    throw;  // not reached: all ranks throw the same
  }
}

void ExpertParallelMLP::State::forward(const ExpertsForward& call) try {
  const ops::Busy busy(state_, kLayer);
  const comm::Group& group = state_.group();
  experts::check(call, desc_, placement_, {.rank = group.rank(), .world = group.world()});
  const PollHook hook = ops::hook_of(kLayer, call.poll);
  const comm::PollHookInWaits in_waits(state_.group(), kLayer, hook);
  mark_call(group.trace(), "call experts", desc_, call.x.rows);
  call_ = &call;
  products_.begin(call, used_biases(call.down_biases, placement_, group.rank()));
  const Tag tag = tag_of(call);
  make([&] { exchange_.prepare(tag); });
  overlap::PollHook poll(hook ? &hook : nullptr);
  overlap::run_call(state_, tag, poll, [&](const Tag& numbered) {
    exchange_.run(numbered,
                  {.rows = call.x.rows,
                   .ids = call.ids,
                   .fused = options_.schedule == Schedule::fused,
                   .replicated = options_.replicated},
                  *this, poll);
    combine();
    if (options_.replicated) exchange_.gather(call.out);
  });
  state_.group().finish_sending();
  note_rows();
  mark_return(group.trace());
} catch (const Error& error) {
  if (error.code() != Code::mismatch) throw;
  throw ops::in_words_of(kLayer, error);
}

void ExpertParallelMLP::State::backward(const ExpertsBackward& call) try {
  const ops::Busy busy(state_, kLayer);
  const comm::Group& group = state_.group();
  experts::check(call, desc_, placement_, {.rank = group.rank(), .world = group.world()});
  PLAIT_CHECK(!options_.replicated, kLayer, ": a layer of replicated batches makes no gradients");
  const PollHook hook = ops::hook_of(kLayer, call.forward.poll);
  const comm::PollHookInWaits in_waits(state_.group(), kLayer, hook);
  mark_call(group.trace(), "call experts backward", desc_, call.forward.x.rows);
  Tag tag = tag_of(call.forward);
  tag.plan = fingerprint_ | 2U;
  make([&] {
    if (!backward_)
      backward_ = std::make_unique<experts::Backward>(desc_, options_, placement_, state_);
    backward_->prepare(tag, call);
  });
  overlap::PollHook poll(hook ? &hook : nullptr);
  backward_->run(tag, poll);
  state_.group().finish_sending();
  mark_return(group.trace());
} catch (const Error& error) {
  if (error.code() != Code::mismatch) throw;
  throw ops::in_words_of(kLayer, error);
}

void ExpertParallelMLP::State::write_row(std::int64_t row, std::byte* to) const {
  std::memcpy(to, call_->x.row(row), static_cast<std::size_t>(bytes_of(desc_, desc_.dtype)));
}

const float* ExpertParallelMLP::State::slot_weights() const {
  return weighs_rows() ? call_->weights.data() : nullptr;
}

void ExpertParallelMLP::State::multiply(const experts::RowStore& store, const experts::Work& work,
                                        experts::PollStep poll_step) {
  const std::int64_t behind_x = bytes_of(desc_, desc_.dtype);
  const auto rows_of = [&](const TensorView& all) { return all.row_range(work.begin, work.end); };
  const TensorView weights = rows_of(store.part(Dtype::s8, sizeof(float), behind_x));
  products_.multiply({.first_group = work.first_group,
                      .counts = work.counts,
                      .x = rows_of(store.part(desc_.dtype, desc_.hidden, 0)),
                      .weights = weighs_rows() ? weights : TensorView{},
                      .out = rows_of(store.result_part(desc_.wire, desc_.hidden))},
                     poll_step);
}

void ExpertParallelMLP::State::work_beside(experts::PollStep poll_step) {
  if (!call_->beside) return;
  const Span span(state_.group().trace(), Lane::compute, "beside", {});
  ops::call_hook(kLayer, [&] { call_->beside([&] { poll_step(); }); });
}

void ExpertParallelMLP::State::combine() {
  const std::int64_t first = exchange_.first_own();
  const std::int64_t rows = exchange_.own_rows();
  const TensorView out = call_->out.row_range(first, first + rows);
  const Span span(state_.group().trace(), Lane::compute, "combine",
                  {.bytes = static_cast<std::int64_t>(out.bytes())});
  const std::span<const void* const> results = exchange_.results();
  exchange_.run_here("combine", std::ssize(results) * bytes_of(desc_, desc_.wire), [&] {
    experts::combine(
        {.results = results,
         .dtype = desc_.wire,
         .weights = weighs_rows() ? nullptr : call_->weights.data() + first * desc_.top,
         .top = desc_.top,
         .parts = desc_.parts},
        out, options_.threads);
  });
}

void ExpertParallelMLP::State::note_rows() {
  const int world = placement_.world();
  const std::size_t own = placement_.experts_of(state_.group().rank()).size();
  shown_.of_ranks.assign(static_cast<std::size_t>(world), 0);
  shown_.of_experts.assign(own, 0);
  shown_.to_ranks.assign(static_cast<std::size_t>(world), 0);
  for (int peer = 0; peer < world; ++peer) {
    for (std::size_t group = 0; group < own; ++group) {
      const std::int64_t rows = exchange_.rows_from(peer, static_cast<std::int64_t>(group));
      shown_.of_ranks[static_cast<std::size_t>(peer)] += rows;
      shown_.of_experts[group] += rows;
    }
    shown_.to_ranks[static_cast<std::size_t>(peer)] = exchange_.rows_to(peer);
  }
}

}  // namespace plait
