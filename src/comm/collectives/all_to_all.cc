#include <cstring>

#include "comm/collectives/streams.h"
#include "comm/collectives/tasks.h"

namespace plait::comm {
namespace {

class AllToAll final : public Task {
 public:
  AllToAll(Communicator::State& state, const ConstElements& send, const Elements& receive,
           const Parts& parts)
      // How many elements travel is a matter of each pair: it is told chunk by chunk, not
      // announced.
      : Task({.operation = Operation::all_to_all, .dtype = send.dtype, .wire = send.dtype}) {
    const Channels channels = state.channels();
    const int rank = state.group().rank();
    const std::size_t size = size_of(send.dtype);
    const auto* from = static_cast<const std::byte*>(send.data);
    auto* to = static_cast<std::byte*>(receive.data);
    to_self_ = to + parts.receive.offsets[rank] * size;
    from_self_ = from + parts.send.offsets[rank] * size;
    bytes_to_self_ = parts.send.counts[rank] * size;
    for (const int peer : peers_of(state.group())) {
      senders_.emplace_back(channels, peer, from + parts.send.offsets[peer] * size,
                            Pieces(parts.send.counts[peer], send.dtype, channels.room));
      sent_.push_back(static_cast<std::int64_t>(parts.send.counts[peer]));
      receivers_.emplace_back(channels, peer,
                              Pieces(parts.receive.counts[peer], receive.dtype, channels.room));
      received_.push_back(static_cast<std::int64_t>(parts.receive.counts[peer]));
      places_.push_back(to + parts.receive.offsets[peer] * size);
    }
  }

  void begin() override {
    if (bytes_to_self_ > 0) std::memcpy(to_self_, from_self_, bytes_to_self_);
  }

  bool advance() override {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t i = 0; i < senders_.size(); ++i) {
        moved |= senders_[i].send_next(tag_of(sent_[i]));
        moved |= receivers_[i].receive_next(tag_of(received_[i]), places_[i]);
      }
    }
    return all_done(senders_) && all_done(receivers_);
  }

  Awaited awaited() const override {
    for (std::size_t i = 0; i < receivers_.size(); ++i) {
      if (!receivers_[i].done()) return receivers_[i].awaited(tag_of(received_[i]));
    }
    for (std::size_t i = 0; i < senders_.size(); ++i) {
      if (!senders_[i].done()) return senders_[i].awaited(tag_of(sent_[i]));
    }
    return nothing_awaited(tag());
  }

 private:
  Tag tag_of(std::int64_t elements) const {
    Tag tag = this->tag();
    tag.sizes[0] = elements;
    return tag;
  }

  Senders senders_;
  Receivers receivers_;
  std::vector<std::int64_t> sent_;
  std::vector<std::int64_t> received_;
  std::vector<std::byte*> places_;
  std::byte* to_self_;
  const std::byte* from_self_;
  std::size_t bytes_to_self_;
};

}  // namespace

std::unique_ptr<Task> make_all_to_all(Communicator::State& state, const ConstElements& send,
                                      const Elements& receive, const Parts& parts) {
  return std::make_unique<AllToAll>(state, send, receive, parts);
}

}  // namespace plait::comm
