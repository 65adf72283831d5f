// The operators: a matrix product with the collective before or after it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "plait/export.h"

namespace plait {

enum class Operator : std::uint8_t {
  matmul,
  matmul_all_reduce,      // compute first
  matmul_reduce_scatter,  // compute first
  matmul_all_gather,      // compute first
  all_gather_matmul,      // comm first
  reduce_scatter_matmul,  // comm first
  all_reduce_matmul,      // comm first
};

inline constexpr int kOperators = 7;

PLAIT_EXPORT std::string_view name(Operator op);

// The inverse of name(), which also reads hyphens ("matmul-all-reduce"); nullopt for other text.
PLAIT_EXPORT std::optional<Operator> parse_operator(std::string_view text);

// Whether the collective moves the product's result, or its operand.
constexpr bool is_compute_first(Operator op) {
  return op == Operator::matmul_all_reduce || op == Operator::matmul_reduce_scatter ||
         op == Operator::matmul_all_gather;
}

// Whether partial sums travel.
constexpr bool sums_over_ranks(Operator op) {
  return op == Operator::matmul_all_reduce || op == Operator::matmul_reduce_scatter ||
         op == Operator::reduce_scatter_matmul || op == Operator::all_reduce_matmul;
}

}  // namespace plait
