// The processes that descend from this one, whoever is their parent by now, and signals for them.
//
// The system gives the number of a process that has ended to another one. So nobody is signalled by
// a number that was read some time ago: a pidfd is opened, and what it names is looked at again.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"

namespace plait::cli {

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  std::uint64_t start = 0;  // ticks since boot: tells it from a later process of the same number
};

// Living descendants of `root`, zombies left out. A moment's view: repeat it until it is empty.
std::vector<Process> processes_below(pid_t root);

// Signals this very process; false where it has ended.
bool signal_process(const Process& process, int signal);

// A process group by the process that leads it. It stays this group when the leader has ended.
struct Group {
  pid_t pid = 0;
  base::Fd leader = {};
};

// Of a child that has not been waited for: nobody else can have its number.
Group open_group(pid_t leader);

// Signals all of the group, and nobody where the number is another group's by now.
void signal_group(const Group& group, int signal);

// Kills the living processes whose environment holds this "NAME=value", as far as we may look;
// false where there are none.
bool kill_all_with(const std::string& variable);

}  // namespace plait::cli
