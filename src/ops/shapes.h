// Which rank has which rows of what: the table in plait/ops.h, for machines.
#pragma once

#include <cstdint>

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

using plan::Split;
using plan::split_of;

// How many rows that is for a rank.
std::int64_t count(Rows rows, std::int64_t m, int rank, int world);

}  // namespace plait::ops
