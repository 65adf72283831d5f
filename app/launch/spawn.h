// Starts one rank: a child that is placed, bound, and killed when we die, before its program runs.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "launch/signals.h"

namespace plait::launch {

struct Child {
  std::string path;
  std::vector<std::string> words;  // the command as the user typed it
  std::vector<std::string> environment;
  std::vector<int> cpus;  // empty: all processors that we may use
  bool own_group = true;  // has a process group of its own
  int in = 0, out = 1, err = 2;
};

// Returns when the program runs; throws the system's error otherwise.
pid_t spawn(const Child& child, const Inherited& inherited);

}  // namespace plait::launch
