// A small process that outlives `plait run` if that is killed, and then ends everything that it
// started.
//
// Ranks die with their parent (PR_SET_PDEATHSIG). Processes that ranks have started, such as python
// in a shell script, do not, and would keep memory and processors.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/fd.h"

namespace plait::launch {

class Guard {
 public:
  // `job` is the value of PLAIT_JOB. Every process with it in its environment belongs to the run.
  // Only a process that has left the ranks' groups and cleared its environment cannot be found.
  explicit Guard(const std::string& job);
  Guard(Guard&&) = delete;
  ~Guard();  // ends the guard, because everything has ended normally

  // Tells the guard about a child that leads a process group. Call it before waiting for the child.
  void watch(pid_t leader);

  pid_t pid() const { return pid_; }

  // Tells that the guard was ended by another process and reaped: its pid may belong to another
  // process now.
  void bury() { pid_ = -1; }

 private:
  base::Fd line_;  // its closing tells the guard that plait run has ended
  pid_t pid_ = -1;
};

}  // namespace plait::launch
