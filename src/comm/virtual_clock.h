// A rank's time where ranks are simulated: it passes as fast as the work in it is said to take, and
// stands still between. Waits and simulated work ask it instead of the host's clock.
#pragma once

#include "base/function_ref.h"
#include "comm/wait.h"
#include "plait/trace.h"

namespace plait::comm {

// What a rank does with bytes: it reads and writes so many of them.
struct Chore {
  Label label;
  std::int64_t read, written;
  SpanArgs args = {};
  bool to_peer = false;  // written where the peer will read it
};

class VirtualClock {
 public:
  virtual ~VirtualClock() = default;
  virtual Nanoseconds now() const = 0;

  // Work of this rank, in which it looks at nothing else.
  virtual void spend(Nanoseconds time) = 0;

  // Work between which it looks around, about every `poll`, where something may have come. Looks
  // take their time too. While this rank's chunks travel, or something is done beside it, work
  // loses `share` of its speed.
  struct Work {
    Nanoseconds time;
    Nanoseconds poll;
    double share = 0;
  };
  virtual void work(const Work& work, base::FunctionRef<void()> look) = 0;

  // Where the ranks' memory is none, chores are done in name only: true, and they take the time
  // that the world says. False: the chore is to be done, and takes none. Where chores are done
  // beside the rank, one after another, what it posts and releases from now on goes out when all of
  // them are done.
  virtual bool plays(const Chore& chore) = 0;

  // Returns when all chores are done.
  virtual void settle() = 0;

  // Returns when ready() says yes; an Error where nothing could ever make it.
  virtual void wait(const Question& question) = 0;

  // For a timeline.
  virtual void record(Lane lane, Label label, Interval interval, const SpanArgs& args) = 0;
};

}  // namespace plait::comm
