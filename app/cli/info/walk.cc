#include "cli/info/walk.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "base/text.h"

namespace plait::cli {
namespace {

// "xsmm (f32)"
std::string label_of(const Json& step) {
  const auto name = step["name"].get<std::string>();
  return step.contains("operand") ? name + " (" + step["operand"].get<std::string>() + ")" : name;
}

}  // namespace

void Walk::add(Json step, const std::string& refusal, bool is_chosen) {
  const auto name = step["name"].get<std::string>();
  std::string answer = refusal;
  if (is_chosen) {
    chosen_ = name;
    first_ = label_of(step);
    answer = asked_.empty() ? "chosen: the first usable one" : "chosen: requested";
  } else if (refusal.empty() && !asked_.empty() && asked_ != name) {
    answer = "usable, but " + asked_ + " was requested";
  } else if (refusal.empty()) {
    answer = "usable, but " + first_ + " comes first";
  }
  step.update({{"can", refusal.empty()}, {"answer", answer}});
  steps_.push_back(std::move(step));
}

std::string show_steps(const Json& steps) {
  std::size_t width = 0;
  for (const Json& step : steps) width = std::max(width, label_of(step).size() + 2);
  std::string text;
  for (const Json& step : steps) {
    const bool can = step["can"].get<bool>();
    const auto label = fmt::format("  {:<{}}{:<5}", label_of(step), width, can ? "yes" : "no");
    text += labelled(label, step["answer"].get<std::string>(), label.size());
  }
  return text;
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
