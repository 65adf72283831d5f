// How forked processes of a test tell each other how far they are.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace plait {

// Made before forking; the processes share it.
class Milestones {
 public:
  Milestones()
      : reached_(static_cast<Numbers*>(::mmap(nullptr, sizeof(Numbers), PROT_READ | PROT_WRITE,
                                              MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  Milestones(const Milestones&) = delete;
  Milestones& operator=(const Milestones&) = delete;
  ~Milestones() { ::munmap(reached_, sizeof(Numbers)); }

  void reach(int milestone) { ++(*reached_)[milestone]; }

  int reached(int milestone) const { return (*reached_)[milestone]; }

  // Waits until `times` processes have reached it. Bounded, so that nothing outlives the test.
  void await(int milestone, int times = 1) const {
    for (int tries = 0; tries < 40'000 && (*reached_)[milestone] < times; ++tries) ::usleep(1000);
  }

 private:
  using Numbers = std::array<std::atomic<int>, 8>;
  Numbers* reached_;
};

}  // namespace plait
