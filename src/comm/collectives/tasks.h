// The collectives as state machines. Each is written once, on mailboxes, for every transport.
//
// All of them are direct: a rank talks to every other rank itself. With the few ranks that share a
// tensor that is the fewest steps; sums are taken where the parts are, as a tree over ranks. Where
// hosts have several ranks each, these act together: see comm/flow.
#pragma once

#include "comm/collectives/vector.h"
#include "comm/session/state.h"

namespace plait::comm {

using Task = Pending::Task;

// A collective that is one flow, which its class has as a member.
template <class Flow>
class FlowTask : public Task {
 public:
  FlowTask(const Tag& tag, Flow& flow) : Task(tag), only_flow_(flow) {}

  bool advance() override {
    only_flow_.step();
    return only_flow_.done();
  }
  Awaited awaited() const override { return only_flow_.awaited(); }

 private:
  Flow& only_flow_;
};

// The hosts whose ranks add up parts of this dtype before they cross: those whose sums, in f32, are
// fewer bytes than the parts. Otherwise each rank acts for itself.
inline const Hosts& hosts_adding_up(Communicator::State& state, Dtype parts) {
  const Hosts& hosts = state.host_ranks();
  const std::size_t bytes = static_cast<std::size_t>(hosts.per_host()) * size_of(parts);
  return bytes > size_of(Dtype::f32) ? hosts : state.lanes().apart();
}

std::unique_ptr<Task> make_barrier(Communicator::State& state);
std::unique_ptr<Task> make_broadcast(Communicator::State& state, const Elements& data, int root);
std::unique_ptr<Task> make_all_gather(Communicator::State& state, const ConstElements& mine,
                                      const Elements& all, const Layout& shards);
std::unique_ptr<Task> make_reduce_scatter(Communicator::State& state, const ConstElements& all,
                                          const Elements& mine, const Layout& shards);
std::unique_ptr<Task> make_all_reduce(Communicator::State& state, const ConstElements& in,
                                      const Elements& out);

struct Parts {
  Layout send;
  Layout receive;
};
std::unique_ptr<Task> make_all_to_all(Communicator::State& state, const ConstElements& send,
                                      const Elements& receive, const Parts& parts);

}  // namespace plait::comm
