// Which rank has which rows of what: the table in plait/ops.h, for machines.
#pragma once

#include <cstdint>

#include "plait/dtype.h"
#include "plait/operator.h"
#include "plait/ops.h"
#include "plan/sizes.h"

namespace plait::ops {

using plan::length;

// A matrix of an operator: all m rows of it, or this rank's shard.
enum class Rows : std::uint8_t { all, own };

struct Shapes {
  Rows x;
  Rows out;
};

constexpr Shapes shapes_of(Operator op) {
  const OperatorTraits& traits = traits_of(op);
  return {.x = traits.has_own_x() ? Rows::own : Rows::all,
          .out = traits.has_own_out() ? Rows::own : Rows::all};
}

// The rows of a rank's product: of its x, or of what its x becomes first.
constexpr Rows multiplied_rows(Operator op) {
  return is_compute_first(op) ? shapes_of(op).x : shapes_of(op).out;
}

// In what chunks travel. What travels first is X itself, or sums of it: rounding it to anything
// else would change it.
constexpr Dtype wire_of(Operator op, Dtype x, Dtype asked, int hosts = 1) {
  if (!traits_of(op).shares_k) return x;
  if (asked != kAutomaticWire) return asked;
  return hosts > 1 ? x : Dtype::f32;
}

// The number of equal shares of a sum, of which this rank's product computes one. If the ranks'
// shares differ, each rank cuts its own as if all were like it. This order is as good as any other,
// and needs no exchange when another rank's share changes.
constexpr std::int64_t shares_of(Operator op, Dtype wire, int world, std::int64_t asked) {
  if (!traits_of(op).communicates()) return asked;
  return traits_of(op).shares_k && wire == Dtype::f32 ? world : 1;
}

// A rank's part of a side that is split: the first ranks have one more where it is uneven.
Range shard_of(std::int64_t whole, int rank, int world);
inline std::int64_t share_of(std::int64_t whole, int rank, int world) {
  return length(shard_of(whole, rank, world));
}

// Which of the m rows a rank has, and how many.
inline Range range_of(Rows rows, std::int64_t m, int rank, int world) {
  return rows == Rows::all ? Range{0, m} : shard_of(m, rank, world);
}
inline std::int64_t count(Rows rows, std::int64_t m, int rank, int world) {
  return length(range_of(rows, m, rank, world));
}

}  // namespace plait::ops
