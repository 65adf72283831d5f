// A flow of a vector's shards through the lanes of a communicator's collectives, for tests of flows
// by themselves.
#pragma once

#include <vector>

#include "comm/collectives/vector.h"
#include "comm/state.h"
#include "comm/wait.h"

namespace plait::comm {

// Shards of many, few and no chunks: rank r's has 20000·((r + shift) mod 3) elements and r more.
inline Layout uneven_layout(int world, int shift) {
  Layout layout;
  std::size_t offset = 0;
  for (int rank = 0; rank < world; ++rank) {
    const std::size_t count = std::size_t{20000} * static_cast<std::size_t>((rank + shift) % 3) +
                              static_cast<std::size_t>(rank);
    layout.offsets.push_back(offset);
    layout.counts.push_back(count);
    offset += count;
  }
  return layout;
}

inline std::size_t elements_of(const Layout& layout) {
  return layout.offsets.back() + layout.counts.back();
}

inline void begin_call(Communicator& comm) {
  comm.state().lanes().begin(comm.state().begin_call({.operation = Operation::all_gather}));
}

template <class Flow>
void finish(Communicator& comm, Flow& flow) {
  wait_until(
      comm.state().group(),
      [&] {
        flow.step();
        comm.state().mailbox().help();
        return flow.done();
      },
      [&] { return comm.state().mailbox().take_due(); }, [&] { return flow.awaited(); });
}

}  // namespace plait::comm
