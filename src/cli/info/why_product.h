// Which backend would multiply, and why not the others: the very walk that select_gemm() makes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/info/walk.h"
#include "plait/gemm.h"

namespace plait::cli {

struct ProductProblem {
  GemmDesc desc;
  std::string backend;  // the one that was asked for; empty: the best
};

// Whether words of words_of_problem() are about a product.
bool is_product(const std::vector<std::string>& words);

// From "m=8 n=4096 k=4096 x=bf16 w=bf16 out=bf16 backend=xsmm" in any order, as parse_gemm() reads
// it.
ProductProblem parse_product(const std::vector<std::string>& words);

Walk walk_backends(const ProductProblem& problem);

std::string show_text(const ProductProblem& problem, const Walk& walk);
nlohmann::ordered_json show_json(const ProductProblem& problem, const Walk& walk);

}  // namespace plait::cli
