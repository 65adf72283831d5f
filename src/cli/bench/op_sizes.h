// Which problems the verbs that measure operators are asked about.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plait::cli {

// Of the whole problem: k is split over the ranks where the product comes first and sums travel, n
// where rows are gathered for it.
struct OpSize {
  std::int64_t m, n, k;
};

// As typed, of --m, --n, --k and --shapes.
struct SizeWishes {
  std::string m;
  std::string n;
  std::string k;
  std::string shapes;
};

std::vector<OpSize> read_problem(const SizeWishes& wishes);

// Of --weight: a dtype, "plain" or a scheme.
void check_weight_kind(const std::string& text);

}  // namespace plait::cli
