#include "comm/collectives/tasks.h"
#include "comm/flow/answer_flow.h"

namespace plait::comm {
namespace {

// Up to this many bytes each rank sends all its elements to every other rank and sums by itself:
// one step instead of two, for (world - 1) times the bytes. Two ranks send the same bytes either
// way, where sums are as wide as parts.
constexpr std::size_t kOneStepBytes = 32 * 1024;

// This limit replaces kOneStepBytes where chunks can be answered: a second step is then cheap.
constexpr std::size_t kAnsweredBytes = 1024;

Tag all_reduce_tag(const ConstElements& in, const Elements& out) {
  return {.operation = Operation::all_reduce,
          .dtype = out.dtype,
          .wire = in.dtype,
          .sizes = {static_cast<std::int64_t>(out.count), 0, 0}};
}

Dtype wider(Dtype a, Dtype b) { return size_of(a) < size_of(b) ? b : a; }

// The shard of `all` that this rank sums.
Elements own_shard(const Elements& all, const Shards& shards, int rank) {
  return {element(all.data, shards.offset(rank), all.dtype), all.count, all.dtype};
}

class OneStep final : public FlowTask<ReduceFlow> {
 public:
  OneStep(Communicator::State& state, const ConstElements& in, const Elements& out)
      : FlowTask(all_reduce_tag(in, out), flow_),
        shards_(Shards::whole(in.count, in.dtype, state.lane_capacity())),
        partials_(shards_, state.group().rank(), in, out),
        flow_(state.lanes(), state.lanes().apart(), partials_,
              {.wire = in.dtype, .is_in_place = in.data == out.data}) {
    flow_.begin();
    flow_.ready(ReduceFlow::kAll);
  }

 private:
  Shards shards_;
  VectorPartials partials_;
  ReduceFlow flow_;
};

// Each rank sums its shard, as in reduce_scatter, and sends each chunk to all as soon as it is
// summed, in the dtype of the result. A sum that comes back overwrites only input that its owner
// has already got from this rank.
class TwoSteps final : public Task {
 public:
  TwoSteps(Communicator::State& state, const ConstElements& in, const Elements& out)
      : TwoSteps(state, in, out, hosts_adding_up(state, in.dtype)) {}

  bool advance() override {
    for (bool moved = true; moved;) {
      moved = sums_.step_once();
      results_.ready(sums_.summed());
      moved |= results_.step_once();
    }
    return sums_.done() && results_.done();
  }

  Awaited awaited() const override { return sums_.done() ? results_.awaited() : sums_.awaited(); }

 private:
  TwoSteps(Communicator::State& state, const ConstElements& in, const Elements& out,
           const Hosts& adding_up)
      : Task(all_reduce_tag(in, out)),
        shards_(
            Shards::balanced(out.count, state.group().world(),
                             adding_up.mates().empty() ? wider(in.dtype, out.dtype) : Dtype::f32,
                             state.lane_capacity())),
        partials_(shards_, state.group().rank(), in, own_shard(out, shards_, state.group().rank())),
        shares_(shards_, state.group().rank(), own_shard(out, shards_, state.group().rank()), out),
        sums_(state.lanes(), adding_up, partials_, {.wire = in.dtype}),
        results_(state.lanes(), state.host_ranks(), shares_, Way::back) {
    sums_.begin();
    sums_.ready(ReduceFlow::kAll);
    results_.begin();
  }

  Shards shards_;
  VectorPartials partials_;
  VectorShares shares_;
  ReduceFlow sums_;
  GatherFlow results_;
};

class Answered final : public FlowTask<AnswerFlow> {
 public:
  Answered(Communicator::State& state, const ConstElements& in, const Elements& out)
      : FlowTask(all_reduce_tag(in, out), flow_),
        shards_(
            Shards::balanced(out.count, state.group().world(), in.dtype, state.lane_capacity())),
        partials_(shards_, state.group().rank(), in, own_shard(out, shards_, state.group().rank())),
        shares_(shards_, state.group().rank(), own_shard(out, shards_, state.group().rank()), out),
        flow_(state.lanes(), partials_, shares_) {}

 private:
  Shards shards_;
  VectorPartials partials_;
  VectorShares shares_;
  AnswerFlow flow_;
};

}  // namespace

std::unique_ptr<Task> make_all_reduce(Communicator::State& state, const ConstElements& in,
                                      const Elements& out) {
  const std::size_t bytes = in.count * size_of(in.dtype);
  const bool converts = in.dtype != out.dtype;
  const bool answers = state.lanes().takes_answers() && !converts;
  if (state.group().world() > 1 && bytes > kAnsweredBytes && answers) {
    return std::make_unique<Answered>(state, in, out);
  }
  const bool narrows = size_of(out.dtype) < size_of(in.dtype);
  const int one_step_world = narrows ? 1 : 2;
  if (state.group().world() <= one_step_world || bytes <= kOneStepBytes) {
    return std::make_unique<OneStep>(state, in, out);
  }
  return std::make_unique<TwoSteps>(state, in, out);
}

}  // namespace plait::comm
