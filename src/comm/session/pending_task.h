// The work behind a Pending.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>

#include "base/clock.h"
#include "base/default_floats.h"
#include "comm/core/group.h"
#include "comm/core/interruption.h"
#include "plait/collectives.h"
#include "plait/trace.h"

namespace plait {

// A collective as a state machine: step() does what can be done now.
class Pending::Task {
 public:
  explicit Task(const Tag& tag) : tag_(tag) {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  // Called before the first step, when the tasks before this one are done: only now is their output
  // there to be read.
  virtual void begin() {}

  // True when all is done, and from then on. Here alone a collective computes: with default
  // floats, so that no bit of a sum depends on which rank adds it up, nor in which call.
  bool step() {
    const base::DefaultFloats floats;
    return advance();
  }

  // Which rank it waits for, and for what.
  virtual comm::Awaited awaited() const = 0;

  // Has it written to a trace as one flight, from now until it is done or abandoned. A blocking
  // call is a span of its caller's instead.
  void record(Trace* trace, Label label, std::int64_t bytes) {
    trace_ = trace;
    label_ = label;
    bytes_ = bytes;
    started_at_ = base::now();
  }

  void stop_recording() { trace_ = nullptr; }

  // Which call this is; the number is given when the task is started.
  const Tag& tag() const { return tag_; }
  void set_call(std::uint32_t call) { tag_.call = call; }

  // True if it is destroyed, and not done, by an exception that the caller's hook has thrown since
  // it was made: what interrupts a call does not wait for another.
  bool is_left_by_interruption() const {
    return fate() == Fate::under_way && std::uncaught_exceptions() > 0 && interruption_.has_come();
  }

  // The state of a Pending that outlives its communicator.
  //
  // Memory ordering: another thread than the one that asks may bring it to its end, in a wait of
  // its own. The thread that finds it done (acquire) finds its output written (release).
  enum class Fate { under_way, done, abandoned };
  Fate fate() const { return fate_.load(std::memory_order_acquire); }
  void set_fate(Fate fate) {
    if (trace_ != nullptr) {
      trace_->flight(Lane::comm, label_, {.begin = started_at_, .end = base::now()},
                     {.bytes = bytes_});
    }
    fate_.store(fate, std::memory_order_release);
  }

 protected:
  virtual bool advance() = 0;

 private:
  Tag tag_;
  comm::Interruption interruption_;
  std::atomic<Fate> fate_{Fate::under_way};

  Trace* trace_ = nullptr;
  Label label_ = "";
  std::int64_t bytes_ = 0;
  base::Nanoseconds started_at_ = 0;
};

}  // namespace plait
