// Explains which backend select_gemm() would choose, and why not the others.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/info/walk.h"
#include "plait/gemm.h"

namespace plait::cli {

struct ProductProblem {
  GemmDesc desc;
  std::string backend;  // the requested one; empty: the best
};

// True if words of words_of_problem() describe a product.
bool is_product(const std::vector<std::string>& words);

// Parses "m=8 n=4096 k=4096 x=bf16 w=bf16 out=bf16 backend=vector" in any order, with the
// defaults of parse_gemm().
ProductProblem parse_product(const std::vector<std::string>& words);

Walk walk_backends(const ProductProblem& problem);

std::string show_text(const ProductProblem& problem, const Walk& walk);
nlohmann::ordered_json show_json(const ProductProblem& problem, const Walk& walk);

}  // namespace plait::cli
