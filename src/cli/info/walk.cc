#include "cli/info/walk.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/text.h"
#include "cli/info/show.h"

namespace plait::cli {

std::string Step::label() const { return kind.empty() ? name : name + " (" + kind + ")"; }

void Walk::add(Step step, const std::string& refusal, bool is_chosen) {
  step.can = refusal.empty();
  step.answer = refusal;
  if (is_chosen) {
    chosen_ = step.name;
    first_ = step.label();
    step.answer = asked_.empty() ? "chosen: the first usable one" : "chosen: requested";
  } else if (step.can && !asked_.empty() && asked_ != step.name) {
    step.answer = "usable, but " + asked_ + " was requested";
  } else if (step.can) {
    step.answer = "usable, but " + first_ + " comes first";
  }
  steps_.push_back(std::move(step));
}

std::string show_steps(const Walk& walk) {
  std::size_t width = 0;
  for (const Step& step : walk.steps()) width = std::max(width, step.label().size() + 2);
  std::string text;
  for (const Step& step : walk.steps()) {
    const auto label = fmt::format("  {:<{}}{:<5}", step.label(), width, step.can ? "yes" : "no");
    text += labelled(label, step.answer, label.size());
  }
  return text;
}

nlohmann::ordered_json steps_json(const Walk& walk) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (const Step& step : walk.steps()) {
    steps.push_back({{"name", step.name}});
    if (!step.kind.empty()) steps.back()["operand"] = step.kind;
    steps.back().update({{"can", step.can}, {"answer", step.answer}});
  }
  return steps;
}

std::vector<std::string> words_of_problem(Words words) {
  std::vector<std::string> all;
  for (const std::string& joined : words) {
    for (const auto word : base::split(joined, ',')) {
      // A launcher's name with a space in it.
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
