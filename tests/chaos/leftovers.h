// The files and memory that a rank could leave behind on its host.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace plait::chaos {

// Gives this process and its children their own /tmp, /dev/shm and abstract sockets, so that
// everything that appears there is ours. False if the system does not allow it; then only plait's
// names count as ours.
bool isolate();

class Leftovers {
 public:
  // Records what exists. `isolated`: the result of isolate().
  explicit Leftovers(bool isolated);

  // New files, sockets and descriptors of this process, one per line. Waits a moment for the
  // kernel's own clean-up.
  std::vector<std::string> left_over() const;

 private:
  bool isolated_;
  std::set<std::string> before_;
};

// The shared memory and sockets of ranks that a process holds. Waits a moment for it to close them.
std::vector<std::string> shared_things_of(pid_t pid);

}  // namespace plait::chaos
