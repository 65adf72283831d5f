// A walk from the best candidate to the last: which one is chosen, and why not the others.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/verbs.h"

namespace plait::cli {

struct Step {
  std::string name;
  std::string answer;  // why it is, could be, or cannot be the one
  bool can = false;
};

struct Walk {
  std::string asked;   // the one that was asked for; empty: the best
  std::string chosen;  // empty: none can
  std::vector<Step> steps;

  // The next one. `refusal` is empty where it can.
  void add(const std::string& name, const std::string& refusal, bool is_chosen);
};

// A line for each step.
std::string show_steps(const Walk& walk);
nlohmann::ordered_json steps_json(const Walk& walk);

// The words of a problem: one in quotes may hold several, and commas may join them.
std::vector<std::string> words_of_problem(Words words);

// What stands before the first "=".
std::string key_of(const std::string& word);

}  // namespace plait::cli
