// The operators: a matrix product with the collective before or after it.
#pragma once

#include <array>
#include <cstddef>
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

// The properties of an operator, for code that serves all operators. The comment in plait/ops.h has
// the same table for readers.
struct OperatorTraits {
  std::string_view name;
  bool compute_first = false;  // the collective moves the product's result, not its operand
  bool reduces = false;        // the collective adds up the ranks' sums, or their x
  bool gathers = false;        // rows reach ranks that do not own them
  bool shares_n = false;       // each rank's weight has a share of n, which may differ
  bool shares_k = false;       // the same for k; then products are partial sums
  bool is_fused = false;       // there is a fused schedule

  constexpr bool communicates() const { return reduces || gathers; }
  // True if a rank's x, or out, is its shard of the m rows. Otherwise it has all of them.
  constexpr bool has_own_x() const { return gathers && !reduces; }
  constexpr bool has_own_out() const { return reduces && !gathers; }
  // True if the shards of x are gathered on every rank.
  constexpr bool gathers_x() const { return has_own_x() && !compute_first; }
};

// Indexed by Operator.
inline constexpr std::array<OperatorTraits, kOperators> kOperatorTraits = {{
    {.name = "matmul"},
    {.name = "matmul_all_reduce",
     .compute_first = true,
     .reduces = true,
     .gathers = true,
     .shares_k = true,
     .is_fused = true},
    {.name = "matmul_reduce_scatter",
     .compute_first = true,
     .reduces = true,
     .shares_k = true,
     .is_fused = true},
    {.name = "matmul_all_gather", .compute_first = true, .gathers = true},
    {.name = "all_gather_matmul", .gathers = true, .shares_n = true, .is_fused = true},
    {.name = "reduce_scatter_matmul", .reduces = true},
    {.name = "all_reduce_matmul", .reduces = true, .gathers = true},
}};

constexpr const OperatorTraits& traits_of(Operator op) {
  return kOperatorTraits[static_cast<std::size_t>(op)];
}

PLAIT_EXPORT std::string_view name(Operator op);

// The inverse of name(), which also reads hyphens ("matmul-all-reduce"); nullopt for other text.
PLAIT_EXPORT std::optional<Operator> parse_operator(std::string_view text);

// True if the collective moves the product's result; otherwise it moves the operand.
constexpr bool is_compute_first(Operator op) { return traits_of(op).compute_first; }

// True if partial sums travel.
constexpr bool sums_over_ranks(Operator op) { return traits_of(op).reduces; }

}  // namespace plait
