#include "comm/meet/process_table.h"

#include <utility>

#include "base/check.h"
#include "base/process.h"

namespace plait::comm::shm {

using base::sentence;

ProcessTable::ProcessTable(base::Fd file, const std::vector<std::string>& introductions)
    : file_(std::move(file)) {
  processes_.reserve(introductions.size());
  for (const std::string& introduction : introductions)
    processes_.push_back(base::read_process_mark(introduction));
}

bool ProcessTable::has_ended(int number) const {
  if (const auto lives = file_.is_locked(number)) return !*lives;
  return processes_[number].has_ended();
}

std::string describe_process(pid_t pid) {
  if (pid == 0) return "its pid is not known";
  const std::string state = base::state_of(pid);
  return sentence("pid ", pid, state.empty() || state == "dead" ? "" : ", ",
                  state == "dead" ? "" : state);
}

}  // namespace plait::comm::shm
