#include "cli/info/records.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/nearest.h"
#include "cli/info/walk.h"
#include "plait/gemm.h"

namespace plait::cli {
namespace {

bool is_product_word(const std::string& word) {
  const std::vector<std::string> keys = {"m", "n", "k", "x", "w", "out", "backend"};
  return std::find(keys.begin(), keys.end(), key_of(word)) != keys.end() || word == "matmul" ||
         word == "op=matmul";
}

}  // namespace

bool is_product(const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), is_product_word);
}

Json explain_product(const std::vector<std::string>& words) {
  std::string text;
  std::string backend;
  for (const std::string& word : words) {
    PLAIT_CHECK(is_product_word(word), "--why ", word,
                ": a product consists of m=, n=, k=, x=, w= and out=, and optionally backend=NAME");
    if (word == "matmul" || word == "op=matmul") continue;
    if (key_of(word) != "backend") {
      text += (text.empty() ? "" : " ") + word;
      continue;
    }
    backend = word.substr(std::min(word.size(), key_of(word).size() + 1));
    PLAIT_CHECK(!backend.empty(), "--why ", word, " has no value; write backend=...");
  }
  const GemmDesc desc = parse_gemm(text);
  const std::vector<GemmChoice> choices = explain_gemm(desc);
  std::vector<std::string> names;
  names.reserve(choices.size());
  for (const GemmChoice& choice : choices) names.push_back(choice.backend);
  PLAIT_CHECK(backend.empty() || std::find(names.begin(), names.end(), backend) != names.end(),
              "there is no backend ", backend, base::did_you_mean(backend, names));
  Walk walk(backend);
  for (const GemmChoice& choice : choices) {
    const bool wanted = backend.empty() || backend == choice.backend;
    walk.add({{"name", choice.backend}, {"operand", name(choice.operand)}}, choice.refusal,
             wanted && choice.refusal.empty() && walk.chosen().empty());
  }
  return {{"problem", {{"product", name(desc)}, {"backend", or_null(backend)}}},
          {"chosen", or_null(walk.chosen())},
          {"walk", walk.steps()}};
}

std::string show_product(const Json& explained) {
  const Json& problem = explained["problem"];
  const std::string requested = or_empty(problem["backend"]);
  const std::string chosen = or_empty(explained["chosen"]);
  return fmt::format("The backend for {}{}\n\n{}\n{}", problem["product"].get<std::string>(),
                     requested.empty() ? "" : ", requested: " + requested,
                     show_steps(explained["walk"]),
                     chosen.empty() ? "None can be used, so select_gemm() will fail.\n"
                                    : "It is " + chosen + ".\n");
}

}  // namespace plait::cli
