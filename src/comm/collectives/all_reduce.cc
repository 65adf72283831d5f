#include <algorithm>

#include "comm/collectives/reducer.h"
#include "comm/collectives/streams.h"
#include "comm/collectives/tasks.h"

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

const std::byte* in_at(const ConstElements& in, std::size_t element) {
  return static_cast<const std::byte*>(in.data) + element * size_of(in.dtype);
}

std::byte* out_at(const Elements& out, std::size_t element) {
  return static_cast<std::byte*>(out.data) + element * size_of(out.dtype);
}

Dtype widest(const ConstElements& in, const Elements& out) {
  return size_of(in.dtype) < size_of(out.dtype) ? out.dtype : in.dtype;
}

// Sums this rank's shard.
Reducer own_shard(Communicator::State& state, const ConstElements& in, const Elements& out) {
  const Shard shard = balanced_shard(out.count, state.group().rank(), state.group().world());
  const Channels channels = state.channels();
  return {channels,
          {in_at(in, shard.offset), shard.count, in.dtype},
          {out_at(out, shard.offset), shard.count, out.dtype},
          Pieces(shard.count, in.dtype, channels.room, widest(in, out))};
}

class OneStep final : public Task {
 public:
  OneStep(Communicator::State& state, const ConstElements& in, const Elements& out)
      : Task(all_reduce_tag(in, out)),
        reducer_(state.channels(), in, out, Pieces(in.count, in.dtype, state.channels().room)) {
    const Channels channels = state.channels();
    for (const int peer : peers_of(state.group())) {
      senders_.emplace_back(channels, peer, in.data, Pieces(in.count, in.dtype, channels.room));
    }
  }

  bool advance() override {
    for (bool moved = true; moved;) {
      moved = false;
      for (Sender& sender : senders_) moved |= sender.send_next(tag());
      // The sum may overwrite the input: not before the input has been sent to all.
      if (std::all_of(senders_.begin(), senders_.end(),
                      [&](const Sender& s) { return s.next() > reducer_.next(); })) {
        moved |= reducer_.reduce_next(tag());
      }
    }
    return reducer_.done() && all_done(senders_);
  }

  Awaited awaited() const override { return first_awaited(tag(), reducer_.receivers(), senders_); }

 private:
  Reducer reducer_;
  Senders senders_;
};

// Each rank sums its shard, as in reduce_scatter, and sends each chunk to all as soon as it is
// summed, in the dtype of the result.
class TwoSteps final : public Task {
 public:
  TwoSteps(Communicator::State& state, const ConstElements& in, const Elements& out)
      : Task(all_reduce_tag(in, out)), reducer_(own_shard(state, in, out)) {
    const Channels channels = state.channels();
    const int world = state.group().world();
    const Dtype cut = widest(in, out);
    const Shard own = balanced_shard(out.count, state.group().rank(), world);
    for (const int peer : peers_of(state.group())) {
      const Shard theirs = balanced_shard(out.count, peer, world);
      senders_.emplace_back(channels, peer, in_at(in, theirs.offset),
                            Pieces(theirs.count, in.dtype, channels.room, cut));
      sum_senders_.emplace_back(channels, peer, out_at(out, own.offset),
                                Pieces(own.count, out.dtype, channels.room, cut), Way::sums);
      sum_receivers_.emplace_back(channels, peer,
                                  Pieces(theirs.count, out.dtype, channels.room, cut), Way::sums);
      places_.push_back(out_at(out, theirs.offset));
    }
  }

  bool advance() override {
    for (bool moved = true; moved;) {
      moved = false;
      for (Sender& sender : senders_) moved |= sender.send_next(tag());
      moved |= reducer_.reduce_next(tag());
      for (Sender& sender : sum_senders_) {
        if (sender.next() < reducer_.next()) moved |= sender.send_next(tag());
      }
      // A sum that comes back overwrites only input that its owner has already got from this rank.
      for (std::size_t i = 0; i < sum_receivers_.size(); ++i) {
        moved |= sum_receivers_[i].receive_next(tag(), places_[i]);
      }
    }
    return reducer_.done() && all_done(senders_) && all_done(sum_senders_) &&
           all_done(sum_receivers_);
  }

  Awaited awaited() const override {
    if (!reducer_.done()) return first_awaited(tag(), reducer_.receivers(), senders_);
    return first_awaited(tag(), sum_receivers_, sum_senders_);
  }

 private:
  Reducer reducer_;
  Senders senders_;
  Senders sum_senders_;
  Receivers sum_receivers_;
  std::vector<std::byte*> places_;
};

// An all-reduce where chunks can be answered: each rank sums its shard and writes the sums over the
// parts that came. A part and its sum cross between two cores in the same memory, so neither has to
// take the lines back from the other's cache, and the parts are still in cache when the sums are
// written.
class Answered final : public Task {
 public:
  Answered(Communicator::State& state, const ConstElements& in, const Elements& out)
      : Task(all_reduce_tag(in, out)), reducer_(own_shard(state, in, out)) {
    const Channels channels = state.channels();
    for (const int peer : peers_of(state.group())) {
      const Shard theirs = balanced_shard(out.count, peer, state.group().world());
      askers_.emplace_back(channels, peer, in_at(in, theirs.offset),
                           Pieces(theirs.count, in.dtype, channels.room));
      places_.push_back(out_at(out, theirs.offset));
    }
  }

  bool advance() override {
    for (bool moved = true; moved;) {
      moved = false;
      for (Asker& asker : askers_) moved |= asker.send_next(tag());
      moved |= reducer_.answer_next(tag());
      for (std::size_t i = 0; i < askers_.size(); ++i) moved |= askers_[i].receive_next(places_[i]);
    }
    return reducer_.done() && all_done(askers_);
  }

  // A peer that has read the answers has room, so only chunks and answers are waited for.
  Awaited awaited() const override {
    for (const Receiver& receiver : reducer_.receivers()) {
      if (!receiver.done() && !receiver.arrived(tag())) return receiver.awaited(tag());
    }
    for (const Asker& asker : askers_) {
      if (!asker.done()) return asker.awaited(tag());
    }
    return nothing_awaited(tag());
  }

 private:
  Reducer reducer_;
  Askers askers_;
  std::vector<std::byte*> places_;
};

}  // namespace

std::unique_ptr<Task> make_all_reduce(Communicator::State& state, const ConstElements& in,
                                      const Elements& out) {
  const std::size_t bytes = in.count * size_of(in.dtype);
  const bool converts = in.dtype != out.dtype;
  const bool answers = state.mailbox().takes_answers() && !converts;
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
