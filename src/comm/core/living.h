// The communicators of this process that have not been destroyed, for the moment at which it ends.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "comm/core/group.h"

namespace plait::comm {

// A communicator, as this list knows it.
class LivingCommunicator {
 public:
  LivingCommunicator() = default;
  LivingCommunicator(const LivingCommunicator&) = delete;
  LivingCommunicator& operator=(const LivingCommunicator&) = delete;

  // The process is about to end.
  virtual void leave() noexcept = 0;

  // See Living::show_wait(), which calls it for one thread at a time.
  virtual void show_wait_elsewhere(const Group& other, const Awaited* awaited) noexcept = 0;

 protected:
  ~LivingCommunicator() = default;
};

class Living {
 public:
  // This process's; a forked child has its own, without those of its parent. Never destroyed:
  // communicators in static variables end after everything else.
  static Living& here();

  void add(LivingCommunicator& one, const std::string& transport);
  void remove(const LivingCommunicator& one) noexcept;

  // Shows in the other communicators that this thread has used last that it waits for `awaited` in
  // `group`; null: no more.
  void show_wait(const Group& group, const Awaited* awaited) noexcept;

  // If another thread is destroying a communicator at this moment, one waits for the other.
  void leave_all() noexcept;

 private:
  Living(pid_t pid, const Living* before) : pid_(pid), before_(before) {}

  pid_t pid_;
  const Living* before_;  // the parent's, which is not to be used: the child lacks its threads
  // A wait at the end, in leave_all(), is shown too.
  std::recursive_mutex mutex_;
  std::vector<LivingCommunicator*> all_;  // the newest last
  std::set<std::string> transports_;      // of those that were ever added
};

}  // namespace plait::comm
