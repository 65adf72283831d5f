// A flow of partial sums to their owners and back, in a mailbox that takes answers: each owner
// writes the sums over the parts that came.
//
// A part and its sum cross between two cores in the same memory, so neither has to take the lines
// back from the other's cache, and the parts are still in cache when the sums are written.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/flow/gather_flow.h"
#include "comm/flow/lanes.h"
#include "comm/flow/reduce_flow.h"

namespace plait::comm {

class AnswerFlow {
 public:
  // The sums have the parts' dtype, and are cut alike. There are two ranks or more.
  AnswerFlow(Lanes& lanes, const Partials& partials, const Shares& shares)
      : lanes_(lanes),
        partials_(partials),
        shares_(shares),
        parts_(static_cast<std::size_t>(lanes.world())),
        own_chunks_(partials.chunks(lanes.rank())) {
    for (const int peer : lanes.peers()) to_ask_ += partials.chunks(peer);
    to_take_ = to_ask_;
  }
  AnswerFlow(const AnswerFlow&) = delete;
  AnswerFlow& operator=(const AnswerFlow&) = delete;

  // Sends, sums and receives what can be now.
  void step() {
    while (step_once()) continue;
  }
  // A chunk of each lane at most; false if nothing can be done.
  bool step_once();

  bool done() const { return summed_ == own_chunks_ && to_take_ == 0; }

  // A peer that has read the answers has room, so only chunks and answers are waited for.
  Awaited awaited() const;

 private:
  bool ask_next(int peer);
  bool answer_next();
  bool take_answer(int peer);
  void sum_twice(const ConstTensorView& own, std::byte* kept);

  Lanes& lanes_;
  const Partials& partials_;
  const Shares& shares_;
  std::vector<const void*> parts_;  // of a chunk, by rank
  std::uint32_t own_chunks_;
  std::uint32_t summed_ = 0;
  std::uint64_t to_ask_ = 0;   // chunks of all peers that are still to be sent
  std::uint64_t to_take_ = 0;  // whose answers are still to be taken
};

}  // namespace plait::comm
