// Explains which backend select_gemm() would choose, and why not the others.
#pragma once

#include <string>
#include <vector>

#include "cli/info/show.h"

namespace plait::cli {

// True if words of words_of_problem() describe a product.
bool is_product(const std::vector<std::string>& words);

// Parses "m=8 n=4096 k=4096 x=bf16 w=bf16 out=bf16 backend=vector" in any order, with the
// defaults of parse_gemm(). `chosen` is null if no backend is usable.
Json explain_product(const std::vector<std::string>& words);

std::string show_product(const Json& explained);

}  // namespace plait::cli
