// What a rank could leave behind on its host.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace plait::chaos {

// Gives this process and its children a /tmp, a /dev/shm and abstract sockets of their own, so that
// whatever appears there is ours. False where the system does not let us: then only what has a name
// of plait's is taken for ours.
bool isolate();

class Surroundings {
 public:
  // Remembers what is there. `isolated`: what isolate() answered.
  explicit Surroundings(bool isolated);

  // What has come since: files, sockets and descriptors of this process, one line each. Gives the
  // kernel a moment to clear up what it clears up by itself.
  std::vector<std::string> left_over() const;

 private:
  bool isolated_;
  std::set<std::string> before_;
};

// What a process holds of what ranks share: memory and sockets. Gives it a moment to let go.
std::vector<std::string> shared_things_of(pid_t pid);

}  // namespace plait::chaos
