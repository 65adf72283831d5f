#include <cstring>

#include "base/fingerprint.h"
#include "comm/collectives/reducer.h"
#include "comm/collectives/streams.h"
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

std::byte* at(void* data, std::size_t element, Dtype dtype) {
  return static_cast<std::byte*>(data) + element * size_of(dtype);
}

const std::byte* at(const void* data, std::size_t element, Dtype dtype) {
  return static_cast<const std::byte*>(data) + element * size_of(dtype);
}

class AllGather final : public Task {
 public:
  AllGather(Communicator::State& state, const ConstElements& mine, const Elements& all,
            const Layout& shards)
      : Task(shard_tag(Operation::all_gather, all, all.dtype, shards)),
        mailbox_(state.mailbox()),
        pieces_(mine.count, mine.dtype, state.channels().room) {
    const Channels channels = state.channels();
    const int rank = state.group().rank();
    own_ = at(all.data, shards.offsets[rank], all.dtype);
    mine_ = mine.data;
    bytes_ = mine.count * size_of(mine.dtype);
    for (const int peer : peers_of(state.group())) {
      senders_.emplace_back(channels, peer, mine.data,
                            Pieces(mine.count, mine.dtype, channels.room));
      receivers_.emplace_back(channels, peer,
                              Pieces(shards.counts[peer], all.dtype, channels.room));
      places_.push_back(at(all.data, shards.offsets[peer], all.dtype));
    }
  }

  void begin() override {
    if (own_ == mine_ || bytes_ == 0) return;
    const auto size = static_cast<std::int64_t>(bytes_);
    if (!is_played(mailbox_, pieces_, {.label = "take", .read = size, .written = size}))
      std::memcpy(own_, mine_, bytes_);
  }

  bool advance() override {
    for (bool moved = true; moved;) {
      moved = false;
      for (Sender& sender : senders_) moved |= sender.send_next(tag());
      for (std::size_t i = 0; i < receivers_.size(); ++i)
        moved |= receivers_[i].receive_next(tag(), places_[i]);
    }
    return all_done(senders_) && all_done(receivers_);
  }

  Awaited awaited() const override { return first_awaited(tag(), receivers_, senders_); }

 private:
  Senders senders_;
  Receivers receivers_;
  std::vector<std::byte*> places_;
  Mailbox::State& mailbox_;
  Pieces pieces_;
  std::byte* own_;
  const void* mine_;
  std::size_t bytes_;
};

class ReduceScatter final : public Task {
 public:
  ReduceScatter(Communicator::State& state, const ConstElements& all, const Elements& mine,
                const Layout& shards)
      : Task(shard_tag(Operation::reduce_scatter, all, mine.dtype, shards)),
        reducer_(state.channels(), own_part(state, all, shards), mine,
                 Pieces(mine.count, all.dtype, state.channels().room)) {
    const Channels channels = state.channels();
    for (const int peer : peers_of(state.group())) {
      senders_.emplace_back(channels, peer, at(all.data, shards.offsets[peer], all.dtype),
                            Pieces(shards.counts[peer], all.dtype, channels.room));
    }
  }

  bool advance() override {
    for (bool moved = true; moved;) {
      moved = reducer_.reduce_next(tag());
      for (Sender& sender : senders_) moved |= sender.send_next(tag());
    }
    return reducer_.done() && all_done(senders_);
  }

  Awaited awaited() const override { return first_awaited(tag(), reducer_.receivers(), senders_); }

 private:
  static ConstElements own_part(Communicator::State& state, const ConstElements& all,
                                const Layout& shards) {
    const int rank = state.group().rank();
    return {at(all.data, shards.offsets[rank], all.dtype), shards.counts[rank], all.dtype};
  }

  Reducer reducer_;
  Senders senders_;
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
