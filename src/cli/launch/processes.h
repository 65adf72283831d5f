// The processes that descend from this one, whoever is their parent by now.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace plait::cli {

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
};

// Living descendants of `root`, zombies left out. A moment's view: repeat it until it is empty.
std::vector<Process> processes_below(pid_t root);

// Living processes whose environment holds this "NAME=value", as far as we may look.
std::vector<pid_t> processes_with(const std::string& variable);

}  // namespace plait::cli
