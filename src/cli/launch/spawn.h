// Starting one rank: a child that is placed, bound and tied to our life before its program runs.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "cli/launch/signals.h"

namespace plait::cli {

struct Child {
  std::string path;
  std::vector<std::string> words;  // the command as the user wrote it
  std::vector<std::string> environment;
  std::vector<int> cpus;  // empty: anywhere we may run
  bool own_group = true;  // a process group of its own
  int in = 0, out = 1, err = 2;
};

// Returns once the program runs; throws what the system has against it.
pid_t spawn(const Child& child, const Inherited& inherited);

}  // namespace plait::cli
