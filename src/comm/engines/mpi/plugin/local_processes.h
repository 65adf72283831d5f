// Which processes run on this host, and whether one of them has died: the others learn it before
// its silence has lasted till the deadline.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"

namespace plait::comm::mpi {

class LocalProcesses {
 public:
  // The text in which a process describes itself to the others: the bytes of one ProcessRecord.
  static std::string record();

  // Takes the records of all ranks, in the order of their ranks in MPI_COMM_WORLD. Refuses records
  // of another build of plait, on all processes alike.
  explicit LocalProcesses(const std::vector<std::string>& records);

  // False, too, for a process of another host: nothing is known of it.
  bool has_ended(int process) const;

  bool any_has_ended() const;

  // "pid 1234"
  std::string describe(int process) const;

  // More processes on this host than processors that they may run on.
  bool oversubscribed() const { return oversubscribed_; }

 private:
  struct Process {
    pid_t pid = 0;
    std::uint64_t start = 0;
    bool is_local = false;
    base::Fd pidfd = {};
  };

  std::vector<Process> all_;
  bool oversubscribed_ = false;
};

}  // namespace plait::comm::mpi
