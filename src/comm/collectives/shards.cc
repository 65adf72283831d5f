#include <cstring>

#include "base/fingerprint.h"
#include "comm/collectives/tasks.h"

namespace plait::comm {

namespace {

// Ranks that cut the tensor differently disagree, and have different fingerprints.
std::int64_t fingerprint(const Layout& layout) {
  return static_cast<std::int64_t>(base::fingerprint(layout.counts));
}

Tag shard_tag(Operation operation, const ConstElements& all, Dtype out, const Layout& shards) {
  return {.operation = operation,
          .dtype = out,
          .wire = all.dtype,
          .sizes = {static_cast<std::int64_t>(all.count), fingerprint(shards), 0}};
}

class AllGather final : public FlowTask<GatherFlow> {
 public:
  AllGather(Communicator::State& state, const ConstElements& mine, const Elements& all,
            const Layout& layout)
      : FlowTask(shard_tag(Operation::all_gather, all, all.dtype, layout), flow_),
        lanes_(state.lanes()),
        shards_(Shards::of(layout, all.dtype, state.lane_capacity())),
        shares_(shards_, lanes_.rank(), mine, all),
        flow_(lanes_, state.host_ranks(), shares_),
        mine_(mine),
        own_(element(all.data, shards_.offset(lanes_.rank()), all.dtype)) {
    flow_.begin();
    flow_.ready(ReduceFlow::kAll);
  }

  void begin() override {
    const std::size_t bytes = mine_.count * size_of(mine_.dtype);
    if (own_ == mine_.data || bytes == 0) return;
    const auto work = [&] {
      const auto size = static_cast<std::int64_t>(bytes);
      return MemoryWork{.label = "take",
                        .read = size,
                        .written = size,
                        .must_be_done = shares_.handling(lanes_.rank()).must_be_done};
    };
    lanes_.run(work, [&] { std::memcpy(own_, mine_.data, bytes); });
  }

 private:
  Lanes& lanes_;
  Shards shards_;
  VectorShares shares_;
  GatherFlow flow_;
  ConstElements mine_;
  std::byte* own_;
};

class ReduceScatter final : public FlowTask<ReduceFlow> {
 public:
  ReduceScatter(Communicator::State& state, const ConstElements& all, const Elements& mine,
                const Layout& layout)
      : ReduceScatter(state, all, mine, layout, hosts_adding_up(state, all.dtype)) {}

 private:
  ReduceScatter(Communicator::State& state, const ConstElements& all, const Elements& mine,
                const Layout& layout, const Hosts& adding_up)
      : FlowTask(shard_tag(Operation::reduce_scatter, all, mine.dtype, layout), flow_),
        shards_(Shards::of(layout, adding_up.mates().empty() ? all.dtype : Dtype::f32,
                           state.lane_capacity())),
        partials_(shards_, state.group().rank(), all, mine),
        flow_(state.lanes(), adding_up, partials_, {.wire = all.dtype}) {
    flow_.begin();
    flow_.ready(ReduceFlow::kAll);
  }

  Shards shards_;
  VectorPartials partials_;
  ReduceFlow flow_;
};

}  // namespace

std::unique_ptr<Task> make_all_gather(Communicator::State& state, const ConstElements& mine,
                                      const Elements& all, const Layout& shards) {
  return std::make_unique<AllGather>(state, mine, all, shards);
}

std::unique_ptr<Task> make_reduce_scatter(Communicator::State& state, const ConstElements& all,
                                          const Elements& mine, const Layout& shards) {
  return std::make_unique<ReduceScatter>(state, all, mine, shards);
}

}  // namespace plait::comm
