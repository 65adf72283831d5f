// Explains which transport connect() would choose, and why not the others.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/info/walk.h"
#include "plait/communicator.h"

namespace plait::cli {

struct Problem {
  Place place;
  std::string transport;  // the requested one; empty: the best
};

// Parses "ranks=4 hosts=2 launcher=mpirun transport=shm" in any order. Each is optional; missing
// ones are taken from the environment.
Problem parse_problem(const std::vector<std::string>& words);

Walk walk_transports(const Problem& problem);

std::string show_text(const Problem& problem, const Walk& walk);
nlohmann::ordered_json show_json(const Problem& problem, const Walk& walk);

}  // namespace plait::cli
