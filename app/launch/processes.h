// The descendants of this process, also those with another parent by now, and signals to them.
//
// The system re-uses the number of an ended process. Therefore no process is signalled by a number
// that was read earlier: a pidfd is opened, and the process behind it is checked again.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"

namespace plait::launch {

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  std::uint64_t start = 0;  // ticks since boot; tells it from a later process of the same number
};

// Living descendants of `root`, without zombies, at one moment. Repeat it until it is empty.
std::vector<Process> processes_below(pid_t root);

// Signals exactly this process; false if it has ended.
bool signal_process(const Process& process, int signal);

// A process group and its leader. It stays this group after the leader has ended.
struct Group {
  pid_t pid = 0;
  base::Fd leader = {};
};

// Opens the group of a child that has not been waited for, so that its number can't be re-used.
Group open_group(pid_t leader);

// Signals all processes of the group, and none if the number belongs to another group by now.
void signal_group(const Group& group, int signal);

// Kills all living processes that have this "NAME=value" in their environment, as far as we may
// read it. False if there are none.
bool kill_all_with(const std::string& variable);

}  // namespace plait::launch
