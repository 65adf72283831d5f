// What the processes know of each other as processes: those of one host can see whether one has
// died before its silence has lasted till the deadline.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"

namespace plait::comm::mpi {

class Neighbours {
 public:
  // What a process tells the others about itself.
  static std::string card();

  // Made of the cards of all ranks, in the order of their ranks in MPI_COMM_WORLD. Refuses those of
  // other builds of plait, on all processes alike.
  explicit Neighbours(const std::vector<std::string>& cards);

  // False, too, for a process of another host: nothing is known of it.
  bool has_ended(int process) const;

  bool any_has_ended() const;

  // "pid 1234"
  std::string describe(int process) const;

  // More processes on this host than processors that they may run on.
  bool crowded() const { return crowded_; }

 private:
  struct Neighbour {
    pid_t pid = 0;
    std::uint64_t start = 0;
    bool near = false;
    base::Fd pidfd = {};
  };

  std::vector<Neighbour> all_;
  bool crowded_ = false;
};

}  // namespace plait::comm::mpi
