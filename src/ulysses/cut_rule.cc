#include "ulysses/cut_rule.h"

#include <algorithm>

#include "base/round_up.h"
#include "plan/sizes.h"

namespace plait::ulysses {
namespace {

// A fused chunk's elements at most. More rows make several chunks of the same columns.
constexpr std::int64_t kMostFused = 256 * 1024;
// Products of fewer rows take longer.
constexpr std::int64_t kLeastRowsFused = 128;

constexpr std::int64_t kLeastRowsOfChunk = 16;
constexpr std::int64_t kChunksOverLink = 32;

}  // namespace

// It depends on nothing that only one rank knows: both ranks of a pair cut alike.
CutRule rule_for(const Kind& kind, const CallPlace& place, const Plan& plan) {
  const Dtype dtype = kind.travelling();
  const std::int64_t rows = base::ceil_div(place.m, place.world);
  CutRule rule = {.plan = plan,
                  .by_columns = kind.product_first &&
                                (plan.schedule != Schedule::pipelined || plan.axis != Axis::rows),
                  .most_elements = plan::copied_elements(dtype)};
  if (place.world == 1) rule.plan = {.schedule = Schedule::serial};
  if (rule.plan.schedule != Schedule::fused) return rule;
  if (kind.product_first) {
    if (plan::are_copied_at_once({.m = place.m, .n = kind.n, .dtype = dtype})) {
      rule.plan = {.schedule = Schedule::serial};
      return rule;
    }
    const plan::PartialSums block = {.m = rows, .n = kind.n / place.world, .dtype = dtype};
    rule.width = plan.chunk > 0 ? std::min(plan.chunk, std::max<std::int64_t>(kind.n, 1))
                                : plan::suitable_chunk(block, place.world, place.linked);
    rule.height = std::max<std::int64_t>(kMostFused / rule.width, 1);
    if (plan.chunk > 0 || !place.linked) return rule;
    // The first chunks of all peers are made in turn: they are as large together as that of two
    // ranks.
    const std::int64_t each = std::max(rows / std::max(place.world - 1, 1), kLeastRowsFused);
    rule.height = std::min(rule.height, base::round_up(each, kLeastRowsOfChunk));
    return rule;
  }
  if (plan::gathers_all_first({.m = place.m, .n = kind.n}, place.world, place.linked)) {
    rule.plan = {.schedule = Schedule::serial};
    return rule;
  }
  const std::int64_t row = std::max<std::int64_t>(kind.k / place.world, 1);
  rule.height = plan.chunk > 0 ? plan.chunk : std::max(rule.most_elements / row, kLeastRowsOfChunk);
  // No product hides the first chunk, and nothing hides the product of the last.
  if (plan.chunk == 0 && place.linked)
    rule.height = std::min(rule.height, std::max(rows / kChunksOverLink, kLeastRowsOfChunk));
  return rule;
}

// Elements that no chunk is larger than.
std::int64_t largest_chunk(const Kind& kind, const CallPlace& place, const CutRule& rule) {
  const std::int64_t rows = base::ceil_div(place.m, place.world);
  const std::int64_t columns = kind.product_first ? kind.n : kind.k;
  if (rule.plan.schedule == Schedule::fused && kind.product_first)
    return std::min(rule.width, columns) * std::min(rule.height, rows);
  return std::min(rule.most_elements, rows * columns);
}

}  // namespace plait::ulysses
