#include <cstring>

#include "comm/collectives/tasks.h"
#include "comm/flow/exchange_flow.h"

namespace plait::comm {
namespace {

class VectorParcels final : public Parcels {
 public:
  VectorParcels(const Shards& to, const Shards& from, const ConstElements& send,
                const Elements& receive)
      : to_(to), from_(from), send_(send), receive_(receive) {}

  std::uint32_t chunks_to(int peer) const override { return to_.pieces(peer).chunks(); }
  std::uint32_t chunks_from(int peer) const override { return from_.pieces(peer).chunks(); }
  Handling handling_to(int peer) const override { return to_.pieces(peer).handling(send_.dtype); }
  Handling handling_from(int peer) const override {
    return from_.pieces(peer).handling(receive_.dtype);
  }
  ConstTensorView outgoing(std::uint32_t chunk, int peer) const override {
    return to_.block(send_, chunk, peer);
  }
  TensorView incoming(std::uint32_t chunk, int peer) const override {
    return from_.block(receive_, chunk, peer);
  }

 private:
  const Shards& to_;
  const Shards& from_;
  ConstElements send_;
  Elements receive_;
};

class AllToAll final : public FlowTask<ExchangeFlow> {
 public:
  AllToAll(Communicator::State& state, const ConstElements& send, const Elements& receive,
           const Parts& parts)
      // How many elements travel is a matter of each pair: it is told chunk by chunk, not
      // announced.
      : FlowTask({.operation = Operation::all_to_all, .dtype = send.dtype, .wire = send.dtype},
                 flow_),
        lanes_(state.lanes()),
        sent_(parts.send.counts),
        received_(parts.receive.counts),
        to_(Shards::of(parts.send, send.dtype, state.lane_capacity())),
        from_(Shards::of(parts.receive, receive.dtype, state.lane_capacity())),
        parcels_(to_, from_, send, receive),
        flow_(lanes_, parcels_),
        to_self_(element(receive.data, from_.offset(lanes_.rank()), receive.dtype)),
        from_self_(element(send.data, to_.offset(lanes_.rank()), send.dtype)),
        bytes_to_self_(parts.send.counts[static_cast<std::size_t>(lanes_.rank())] *
                       size_of(send.dtype)) {}

  void begin() override {
    lanes_.set_counts(sent_, received_);
    if (bytes_to_self_ > 0) std::memcpy(to_self_, from_self_, bytes_to_self_);
  }

 private:
  Lanes& lanes_;
  std::vector<std::size_t> sent_;  // elements, by peer
  std::vector<std::size_t> received_;
  Shards to_;
  Shards from_;
  VectorParcels parcels_;
  ExchangeFlow flow_;
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
