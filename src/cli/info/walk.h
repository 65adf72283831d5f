// Tries candidates from the best to the last, and records which one is chosen and why not the
// others.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/verbs.h"

namespace plait::cli {

struct Step {
  std::string name;
  std::string kind = {};  // the variant of that name; empty: there is only one
  bool can = false;
  std::string answer = {};  // why it is chosen, usable or not usable

  std::string label() const;  // "vector (f32)"
};

class Walk {
 public:
  // `asked` is the requested candidate; empty: the best.
  explicit Walk(std::string asked) : asked_(std::move(asked)) {}

  const std::string& chosen() const { return chosen_; }  // empty: none is usable
  const std::vector<Step>& steps() const { return steps_; }

  // Adds the next step, without its answer. `refusal` is empty if the candidate is usable.
  void add(Step step, const std::string& refusal, bool is_chosen);

 private:
  std::string asked_;
  std::string chosen_;
  std::string first_;  // the chosen one's label
  std::vector<Step> steps_;
};

// One line per step.
std::string show_steps(const Walk& walk);
nlohmann::ordered_json steps_json(const Walk& walk);

// Splits a problem into words: quotes may hold several words, and commas may join them.
std::vector<std::string> words_of_problem(Words words);

// The text before the first "=".
std::string key_of(const std::string& word);

}  // namespace plait::cli
