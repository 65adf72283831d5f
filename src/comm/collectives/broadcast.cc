#include "comm/collectives/tasks.h"

namespace plait::comm {
namespace {

// All elements are the root's.
class RootsShares final : public Shares {
 public:
  RootsShares(const Elements& data, int root, const LaneCapacity& capacity)
      : data_(data), root_(root), pieces_(data.count, data.dtype, capacity) {}

  std::uint32_t chunks(int owner) const override { return owner == root_ ? pieces_.chunks() : 0; }
  Handling handling(int /*owner*/) const override { return pieces_.handling(data_.dtype); }
  ConstTensorView own(std::uint32_t chunk) const override { return place(chunk, root_); }
  TensorView place(std::uint32_t chunk, int /*owner*/) const override {
    return chunk_of(data_, pieces_, chunk);
  }

 private:
  Elements data_;
  int root_;
  Pieces pieces_;
};

class Broadcast final : public Task {
 public:
  Broadcast(Communicator::State& state, const Elements& data, int root)
      : Task({.operation = Operation::broadcast,
              .dtype = data.dtype,
              .wire = data.dtype,
              .sizes = {static_cast<std::int64_t>(data.count), 0, root}}),
        group_(state.group()),
        lanes_(state.lanes()),
        is_root_(group_.rank() == root),
        shares_(data, root, state.lane_capacity()),
        // The root sends to every rank itself: each of two that both think they are the root must
        // find the other one's chunk.
        flow_(lanes_, lanes_.apart(), shares_) {
    flow_.begin();
    flow_.ready(ReduceFlow::kAll);
  }

  bool advance() override {
    flow_.step();
    if (!flow_.done()) return false;
    if (is_root_ && !compared_ && lanes_.world() > 1) check_for_other_roots();
    compared_ = true;
    return true;
  }

  Awaited awaited() const override { return flow_.awaited(); }

 private:
  // A root gets no answer: two ranks that both think they are the root would both return happily.
  void check_for_other_roots() {
    group_.compare_calls();
    for (const int peer : lanes_.peers()) lanes_.check_none(Way::out, peer);
  }

  Group& group_;
  Lanes& lanes_;
  bool is_root_;
  bool compared_ = false;
  RootsShares shares_;
  GatherFlow flow_;
};

}  // namespace

std::unique_ptr<Task> make_broadcast(Communicator::State& state, const Elements& data, int root) {
  return std::make_unique<Broadcast>(state, data, root);
}

}  // namespace plait::comm
