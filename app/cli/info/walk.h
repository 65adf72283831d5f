// Tries candidates from the best to the last, and records which one is chosen and why not the
// others.
#pragma once

#include <string>
#include <vector>

#include "cli/info/show.h"
#include "cli/verbs.h"

namespace plait::cli {

class Walk {
 public:
  // `asked` is the requested candidate; empty: the best.
  explicit Walk(std::string asked) : asked_(std::move(asked)) {}

  const std::string& chosen() const { return chosen_; }  // empty: none is usable

  // Each has its name, the operand of its variant if it has several, whether it can be used, and
  // why it is chosen, usable or not usable.
  const Json& steps() const { return steps_; }

  // `step` has a name, and an operand if the candidate has several variants. `refusal` is empty if
  // it is usable.
  void add(Json step, const std::string& refusal, bool is_chosen);

 private:
  std::string asked_;
  std::string chosen_;
  std::string first_;  // the chosen one's label
  Json steps_ = Json::array();
};

// One line per step.
std::string show_steps(const Json& steps);

// Splits a problem into words: quotes may hold several words, and commas may join them.
std::vector<std::string> words_of_problem(Words words);

// The text before the first "=".
std::string key_of(const std::string& word);

}  // namespace plait::cli
