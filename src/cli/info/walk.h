// A walk from the best candidate to the last: which one is chosen, and why not the others.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/verbs.h"

namespace plait::cli {

struct Step {
  std::string name;
  std::string kind = {};  // which of those with this name; empty where there is one
  bool can = false;
  std::string answer = {};  // why it is, could be, or cannot be the one

  std::string label() const;  // "xsmm (f32)"
};

class Walk {
 public:
  // `asked` is the one that was asked for; empty: the best.
  explicit Walk(std::string asked) : asked_(std::move(asked)) {}

  const std::string& chosen() const { return chosen_; }  // empty: none can
  const std::vector<Step>& steps() const { return steps_; }

  // The next one, of which all but the answer is known. `refusal` is empty where it can.
  void add(Step step, const std::string& refusal, bool is_chosen);

 private:
  std::string asked_;
  std::string chosen_;
  std::string first_;  // the chosen one's label
  std::vector<Step> steps_;
};

// A line for each step.
std::string show_steps(const Walk& walk);
nlohmann::ordered_json steps_json(const Walk& walk);

// The words of a problem: one in quotes may hold several, and commas may join them.
std::vector<std::string> words_of_problem(Words words);

// What stands before the first "=".
std::string key_of(const std::string& word);

}  // namespace plait::cli
