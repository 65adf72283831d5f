#include "comm/collectives/streams.h"
#include "comm/collectives/tasks.h"

namespace plait::comm {
namespace {

class Broadcast final : public Task {
 public:
  Broadcast(Communicator::State& state, const Elements& data, int root)
      : Task({.operation = Operation::broadcast,
              .dtype = data.dtype,
              .wire = data.dtype,
              .sizes = {static_cast<std::int64_t>(data.count), 0, root}}),
        data_(static_cast<std::byte*>(data.data)),
        group_(state.group()),
        channels_(state.channels()) {
    const Pieces pieces(data.count, data.dtype, channels_.room);
    if (group_.rank() != root) {
      receivers_.emplace_back(channels_, root, pieces);
      return;
    }
    for (const int peer : peers_of(group_))
      senders_.emplace_back(channels_, peer, data.data, pieces);
  }

  bool advance() override {
    for (bool moved = true; moved;) {
      moved = false;
      for (Sender& sender : senders_) moved |= sender.send_next(tag());
      for (Receiver& receiver : receivers_) moved |= receiver.receive_next(tag(), data_);
    }
    if (!all_done(senders_) || !all_done(receivers_)) return false;
    if (!senders_.empty() && !compared_) look_for_other_roots();
    compared_ = true;
    return true;
  }

  Awaited awaited() const override { return first_awaited(tag(), receivers_, senders_); }

 private:
  // A root gets no answer: two ranks that both think they are the root would both return happily.
  void look_for_other_roots() {
    group_.compare_calls();
    for (const int peer : peers_of(group_)) {
      const std::uint32_t received = channels_.cursors[peer].received[static_cast<int>(Way::parts)];
      channels_.mailbox.check_next(peer, static_cast<int>(received % channels_.room.per_lane),
                                   tag());
    }
  }

  std::byte* data_;
  Group& group_;
  Channels channels_;
  bool compared_ = false;
  Senders senders_;
  Receivers receivers_;
};

}  // namespace

std::unique_ptr<Task> make_broadcast(Communicator::State& state, const Elements& data, int root) {
  return std::make_unique<Broadcast>(state, data, root);
}

}  // namespace plait::comm
