// Words of options that the benchmarks of experts share.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "cli/values.h"
#include "measure/grouped_case.h"

namespace plait::cli {

// Finds the words of a list among those that are known.
inline std::vector<std::string> read_known(std::string_view option, const std::string& text,
                                           const std::vector<std::string>& known) {
  std::vector<std::string> words = read_list(option, text);
  for (const std::string& word : words) {
    PLAIT_CHECK(std::find(known.begin(), known.end(), word) != known.end(), option, " ", word,
                " is none of ", fmt::format("{}", fmt::join(known, ", ")));
  }
  return words;
}

inline std::vector<std::string> experts_words() {
  std::vector<std::string> words;
  for (const measure::ExpertsModel& model : measure::experts_models()) words.push_back(model.name);
  return words;
}

inline std::vector<measure::ExpertsModel> read_experts(std::string_view option,
                                                       const std::string& text) {
  std::vector<measure::ExpertsModel> models;
  for (const std::string& word : read_known(option, text, experts_words())) {
    for (const measure::ExpertsModel& model : measure::experts_models())
      if (model.name == word) models.push_back(model);
  }
  return models;
}

}  // namespace plait::cli
