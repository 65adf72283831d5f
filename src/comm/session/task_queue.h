// The collectives under way, which are done one after another, and the patience of a rank that
// polls them.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "comm/core/executor.h"
#include "comm/core/patience.h"
#include "comm/flow/lanes.h"
#include "comm/session/call_counter.h"
#include "comm/session/membership.h"
#include "comm/session/pending_task.h"

namespace plait::comm {

class TaskQueue {
 public:
  using Task = Pending::Task;

  TaskQueue(const Membership& membership, CallCounter& calls);

  // Sets the mailbox of the tasks, before the first of them.
  void use(Lanes& lanes, Mailbox::State& mailbox);

  // The beginning of another call, after what was started before: gives it its number, and tells
  // the peers what this rank is in.
  Tag begin_call(Tag tag);

  // Runs a task to its end, after those that were started before.
  void run(Task& task);

  // Begins a task, or puts it behind those under way.
  void start(std::shared_ptr<Task> task);

  // Does what can be done now; true when `task` is done. A rank that polls is as good as one that
  // waits: it notices lost peers, and its patience ends too.
  bool poll(const Task& task);
  void wait(const Task& task);

  bool empty() const { return tasks_.empty(); }
  Executor* clock() const { return clock_of(group()); }

  // For a thread that waits elsewhere: does what can be done now, and returns whether anything has
  // moved. What it fails with is thrown by the next call here; an exception of the caller's hook is
  // thrown at once.
  bool advance_beside();

  // True if there is something that advance_beside() may still do.
  bool can_advance() const;

  // Tells the peers, at the end of a call, whether this rank is in one that it polls.
  void show();

  void stop_recording();
  void abandon();

 private:
  Group& group() const { return membership_.group(); }
  void begin(Task& task);
  bool advance(const Task& task);
  void advance_all();
  bool is_sent();
  void end_front();
  void poll_peers();
  void drain();
  bool has(const Task& task) const;

  const Membership& membership_;
  CallCounter& calls_;
  Lanes* lanes_ = nullptr;
  Mailbox::State* mailbox_ = nullptr;
  std::deque<std::shared_ptr<Task>> tasks_;

  std::exception_ptr thrown_;  // by advance_beside()

  // The front of the queue has done its part, and this is on its way. The next task begins when
  // the kernel has it: what that one sends, a peer may never receive that waits elsewhere for this
  // rank to be done with the first.
  std::optional<std::vector<Unsent>> unsent_;

  // Polling for the front of the queue.
  Patience patience_;
  std::uint64_t polled_moves_ = 0;
  PublishedWait polling_;
};

}  // namespace plait::comm
