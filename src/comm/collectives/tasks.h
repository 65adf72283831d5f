// The collectives as state machines. Each is written once, on mailboxes, for every transport.
//
// All of them are direct: a rank talks to every other rank itself. With the few ranks that share a
// tensor that is the fewest steps; sums are taken where the parts are, as a tree over ranks.
#pragma once

#include <vector>

#include "comm/collectives/chunks.h"
#include "comm/state.h"

namespace plait::comm {

using Task = Pending::Task;

// Where each rank's elements begin, and how many they are.
struct Layout {
  std::vector<std::size_t> offsets;
  std::vector<std::size_t> counts;
};

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
