// The options of plait bench matmul.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/race.h"
#include "cli/verbs.h"
#include "plait/gemm.h"

namespace plait::cli {

struct MatmulOptions {
  std::vector<std::int64_t> m;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Dtype x = Dtype::bf16;
  Dtype out = Dtype::bf16;
  // The weight as in GemmDesc's text ("bf16", "s8:group=128"), packed before the call; or "plain":
  // X's dtype, not packed before.
  std::vector<std::string> weights;
  WeightLayout layout = WeightLayout::out_in;
  int threads = 1;
  std::vector<std::string> backends;  // "": the best; "all": all that can, except the reference
  std::int64_t columns = 0;           // of a window; 0: all at once
  bool accumulate = false;
  bool transposed_x = false;
  Effort effort;
  std::string json;  // a file, "-" for standard output, or empty
  std::vector<std::string> words;
};

inline constexpr const char* kPlain = "plain";

// nullopt: help was requested and has been printed.
std::optional<MatmulOptions> read_matmul_options(Words words);

}  // namespace plait::cli
