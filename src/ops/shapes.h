// Which rank has which rows of what: the table in plait/ops.h, for machines.
#pragma once

#include <cstdint>

#include "plait/dtype.h"
#include "plait/operator.h"
#include "plan/split.h"

namespace plait::ops {

// A matrix of an operator: all m rows of it, or this rank's shard.
enum class Rows : std::uint8_t { all, own };

struct Shapes {
  Rows x;
  Rows out;
};

Shapes shapes_of(Operator op);

// Whether a product leaves sums to be added up, rounded to the wire.
constexpr bool makes_partial_sums(Operator op) {
  return is_compute_first(op) && sums_over_ranks(op);
}

// In what chunks travel. What travels first is X itself, or sums of it: rounding it to anything
// else would change it.
constexpr Dtype wire_of(Operator op, Dtype x, Dtype asked) {
  return makes_partial_sums(op) ? asked : x;
}

// The number of equal shares of a sum, of which this rank's product computes one. If the ranks'
// shares differ, each rank cuts its own as if all were like it. This order is as good as any other,
// and needs no exchange when another rank's share changes.
constexpr std::int64_t shares_of(Operator op, Dtype wire, int world, std::int64_t asked) {
  if (op == Operator::matmul) return asked;
  return makes_partial_sums(op) && wire == Dtype::f32 ? world : 1;
}

using plan::Split;
using plan::split_of;

// A rank's part of a side that is split: the first ranks have one more where it is uneven.
std::int64_t share_of(std::int64_t whole, int rank, int world);

// How many rows that is for a rank.
std::int64_t count(Rows rows, std::int64_t m, int rank, int world);

}  // namespace plait::ops
