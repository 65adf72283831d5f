// The processes of a group and of all groups that are split off it, each under the number of its
// rank when they met: whether it still lives, and what is said about it in messages.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/life_file.h"
#include "base/process_mark.h"

namespace plait::comm::shm {

// "pid 1234, stopped"; 0: a process of another pid namespace.
std::string describe_process(pid_t pid);

class ProcessTable {
 public:
  // `file`: see base::LifeFile; it has a byte for each process. `introductions`: what each process
  // has said of itself (base::mark_of_this_process()), in the order of their numbers.
  ProcessTable(base::Fd file, const std::vector<std::string>& introductions);

  // Marks this process as alive under `number`, for as long as this object lives. Before any other
  // process asks.
  void lock(int number) { file_.lock(number); }

  bool has_ended(int number) const;

  std::string describe(int number) const { return describe_process(processes_[number].pid); }

 private:
  base::LifeFile file_;
  std::vector<base::ProcessMark> processes_;
};

}  // namespace plait::comm::shm
