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
        data_(static_cast<std::byte*>(data.data)) {
    const Channels channels = state.channels();
    const Group& group = state.group();
    const Pieces pieces(data.count, data.dtype, channels.room);
    if (group.rank() != root) {
      receivers_.emplace_back(channels, root, pieces);
      return;
    }
    for (const int peer : peers_of(state.group()))
      senders_.emplace_back(channels, peer, data.data, pieces);
  }

  bool step() override {
    for (bool moved = true; moved;) {
      moved = false;
      for (Sender& sender : senders_) moved |= sender.send_next(tag());
      for (Receiver& receiver : receivers_) moved |= receiver.receive_next(tag(), data_);
    }
    return all_done(senders_) && all_done(receivers_);
  }

  Awaited awaited() const override { return first_awaited(tag(), receivers_, senders_); }

 private:
  std::byte* data_;
  Senders senders_;
  Receivers receivers_;
};

}  // namespace

std::unique_ptr<Task> make_broadcast(Communicator::State& state, const Elements& data, int root) {
  return std::make_unique<Broadcast>(state, data, root);
}

}  // namespace plait::comm
