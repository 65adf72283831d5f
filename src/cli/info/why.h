// Which transport would be chosen, and why not the others: the very walk that connect() makes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "plait/communicator.h"

namespace plait::cli {

struct Problem {
  Place place;
  std::string transport;  // the one that was asked for; empty: the best
};

// From "ranks=4 hosts=2 launcher=mpirun transport=shm" in any order, each optional; what is not
// said is taken from the environment. Words may also be joined by commas.
Problem parse_problem(Words words);

struct Step {
  std::string name;
  std::string answer;  // why it is, could be, or cannot be the one
  bool can = false;
};

struct Walk {
  std::vector<Step> steps;  // every transport, best first
  std::string chosen;       // empty: none can
};

Walk walk_transports(const Problem& problem);

std::string show_text(const Problem& problem, const Walk& walk);
nlohmann::ordered_json show_json(const Problem& problem, const Walk& walk);

}  // namespace plait::cli
