// The processes that run on this host, and whether one of them has died: MPI must not send to it,
// nor wait for it when it ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"

namespace plait::comm::mpi {

class LocalProcesses {
 public:
  // The text in which a process describes itself to the others.
  static std::string record();

  // Takes the records of all processes.
  explicit LocalProcesses(const std::vector<std::string>& records);

  std::size_t count() const { return all_.size(); }

  // False, too, for a process of another host: nothing is known of it.
  bool has_ended(int process) const { return all_[process].has_ended(); }
  bool any_has_ended() const;

  // Tells of an end before has_ended() does, and before the process's sockets are closed. True,
  // too, for a process whose first thread has ended before the others.
  bool may_be_ending(int process) const { return all_[process].may_be_ending(); }

 private:
  struct Process {
    bool is_local = false;
    pid_t pid = 0;
    std::uint64_t start = 0;
    base::Fd pidfd = {};
    base::Fd memory_size = {};

    bool has_ended() const;
    bool may_be_ending() const;
  };

  std::vector<Process> all_;
};

}  // namespace plait::comm::mpi
