#include "cli/info/why_product.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/nearest.h"
#include "cli/info/show.h"

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

ProductProblem parse_product(const std::vector<std::string>& words) {
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
  const ProductProblem problem = {.desc = parse_gemm(text), .backend = backend};
  std::vector<std::string> names;
  for (const GemmChoice& choice : explain_gemm(problem.desc)) names.push_back(choice.backend);
  PLAIT_CHECK(backend.empty() || std::find(names.begin(), names.end(), backend) != names.end(),
              "there is no backend ", backend, base::did_you_mean(backend, names));
  return problem;
}

Walk walk_backends(const ProductProblem& problem) {
  Walk walk(problem.backend);
  for (const GemmChoice& choice : explain_gemm(problem.desc)) {
    const bool wanted = problem.backend.empty() || problem.backend == choice.backend;
    walk.add({.name = choice.backend, .kind = std::string(name(choice.operand))}, choice.refusal,
             wanted && choice.refusal.empty() && walk.chosen().empty());
  }
  return walk;
}

std::string show_text(const ProductProblem& problem, const Walk& walk) {
  const std::string asked = problem.backend.empty() ? "" : ", requested: " + problem.backend;
  return fmt::format("The backend for {}{}\n\n{}\n{}", name(problem.desc), asked, show_steps(walk),
                     walk.chosen().empty() ? "None can be used, so select_gemm() will fail.\n"
                                           : "It is " + walk.chosen() + ".\n");
}

nlohmann::ordered_json show_json(const ProductProblem& problem, const Walk& walk) {
  using Json = nlohmann::ordered_json;
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return {{"problem", {{"product", name(problem.desc)}, {"backend", or_null(problem.backend)}}},
          {"chosen", or_null(walk.chosen())},
          {"walk", steps_json(walk)}};
}

}  // namespace plait::cli
