// Words of options that the benchmarks of experts share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/values.h"
#include "measure/experts_case.h"

namespace plait::cli {

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

inline std::vector<std::string> read_experts_skews(std::string_view option,
                                                   const std::string& text) {
  return read_known(option, text, measure::experts_skews());
}

}  // namespace plait::cli
