#include "cli/info/walk.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/text.h"
#include "cli/info/show.h"

namespace plait::cli {

void Walk::add(const std::string& name, const std::string& refusal, bool is_chosen) {
  Step step = {.name = name, .answer = refusal, .can = refusal.empty()};
  if (is_chosen) {
    chosen = name;
    step.answer = asked.empty() ? "chosen: the first that can" : "chosen: it was asked for";
  } else if (step.can && !asked.empty()) {
    step.answer = "could, but " + asked + " was asked for";
  } else if (step.can) {
    step.answer = "could, but " + chosen + " comes first";
  }
  steps.push_back(std::move(step));
}

std::string show_steps(const Walk& walk) {
  std::size_t width = 0;
  for (const Step& step : walk.steps) width = std::max(width, step.name.size() + 2);
  std::string text;
  for (const Step& step : walk.steps) {
    const auto label = fmt::format("  {:<{}}{:<5}", step.name, width, step.can ? "yes" : "no");
    text += labelled(label, step.answer, label.size());
  }
  return text;
}

nlohmann::ordered_json steps_json(const Walk& walk) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (const Step& step : walk.steps)
    steps.push_back({{"name", step.name}, {"can", step.can}, {"answer", step.answer}});
  return steps;
}

std::vector<std::string> words_of_problem(Words words) {
  std::vector<std::string> all;
  for (const std::string& joined : words) {
    for (const auto word : base::split(joined, ',')) {
      // The name of a launcher that has a space in it.
      if (word.find("plait run") != std::string_view::npos) {
        all.emplace_back(word);
        continue;
      }
      for (const auto part : base::split(word, ' ')) {
        if (!part.empty()) all.emplace_back(part);
      }
    }
  }
  return all;
}

std::string key_of(const std::string& word) { return word.substr(0, word.find('=')); }

}  // namespace plait::cli
