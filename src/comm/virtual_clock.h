// A rank's time where ranks are simulated: it passes as fast as the work in it is said to take, and
// stands still between. Waits and simulated work ask it instead of the host's clock.
#pragma once

#include "base/function_ref.h"
#include "comm/wait.h"
#include "plait/trace.h"

namespace plait::comm {

// A copy or a sum: how many bytes a rank reads and writes.
struct MemoryWork {
  Label label;
  std::int64_t read, written;
  SpanArgs args = {};
  bool to_peer = false;  // written where the peer will read it
};

class VirtualClock {
 public:
  virtual ~VirtualClock() = default;
  virtual Nanoseconds now() const = 0;

  // Work of this rank, during which it polls nothing.
  virtual void spend(Nanoseconds time) = 0;

  // Work during which the rank polls, about every `poll`, if something may have come. Polls take
  // their time too. While this rank's chunks travel, or something is done beside it, work
  // loses `share` of its speed.
  struct Work {
    Nanoseconds time;
    Nanoseconds poll;
    double share = 0;
  };
  virtual void work(const Work& work, base::FunctionRef<void()> poll_step) = 0;

  // True where slots have no storage: the work is not to be done, and takes the time that the
  // simulation's costs say. False: it is to be done, and takes no time. Where work is done in the
  // background, one piece after another, what the rank posts and releases from now on goes out when
  // all of it is done.
  virtual bool simulated(const MemoryWork& work) = 0;

  // Returns when all work in the background is done.
  virtual void drain() = 0;

  // Returns when ready() says yes; an Error where nothing could ever make it.
  virtual void wait(const Question& question) = 0;

  // For a timeline.
  virtual void record(Lane lane, Label label, Interval interval, const SpanArgs& args) = 0;
};

}  // namespace plait::comm
