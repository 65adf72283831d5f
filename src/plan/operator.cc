#include "plait/operator.h"

#include <algorithm>
#include <array>
#include <string>

namespace plait {
namespace {

// Indexed by Operator.
constexpr std::array<std::string_view, kOperators> kNames = {
    "matmul",
    "matmul_all_reduce",
    "matmul_reduce_scatter",
    "matmul_all_gather",
    "all_gather_matmul",
    "reduce_scatter_matmul",
    "all_reduce_matmul",
};

}  // namespace

std::string_view name(Operator op) { return kNames[static_cast<std::size_t>(op)]; }

std::optional<Operator> parse_operator(std::string_view text) {
  std::string word(text);
  std::replace(word.begin(), word.end(), '-', '_');
  const auto* const found = std::find(kNames.begin(), kNames.end(), word);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Operator>(found - kNames.begin());
}

}  // namespace plait
