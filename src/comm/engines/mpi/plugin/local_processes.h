// The processes that run on this host, and whether one of them has died: the others then don't wait
// for it when MPI ends.
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

  // Takes the records of all processes, and leaves out those of other hosts: nothing is known of
  // them.
  explicit LocalProcesses(const std::vector<std::string>& records);

  bool any_has_ended() const;

 private:
  struct Process {
    pid_t pid = 0;
    std::uint64_t start = 0;
    base::Fd pidfd = {};

    bool has_ended() const;
  };

  std::vector<Process> local_;
};

}  // namespace plait::comm::mpi
