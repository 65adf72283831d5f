// The processes of a group and of all groups that are split off it, each under the number of its
// rank when they met: whether it still lives, and what is said about it in messages.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/life_file.h"

namespace plait::comm::shm {

class ProcessTable {
 public:
  // What a process tells the others about itself.
  static std::string introduce_this_process();

  // `file`: see base::LifeFile; it has a byte for each process. `introductions`: in the order of
  // the processes' numbers.
  ProcessTable(base::Fd file, const std::vector<std::string>& introductions);

  // Marks this process as alive under `number`, for as long as this object lives. Before any other
  // process asks.
  void lock(int number) { file_.lock(number); }

  bool has_ended(int number) const;

  // "pid 1234, stopped"
  std::string describe(int number) const;

 private:
  struct Process {
    pid_t pid = 0;
    std::uint64_t start = 0;  // see base::start_of()
    bool is_visible = false;  // to this process: both have the same namespaces of pids and of time
  };

  static Process read(const std::string& introduction);

  base::LifeFile file_;
  std::vector<Process> processes_;
};

}  // namespace plait::comm::shm
