// Which rank has which rows of what: the table in plait/ops.h, for machines.
#pragma once

#include <cstdint>

#include "plait/operator.h"

namespace plait::ops {

// A matrix of an operator: all m rows of it, or this rank's shard.
enum class Rows : std::uint8_t { all, own };

struct Shapes {
  Rows x;
  Rows out;
};

Shapes shapes_of(Operator op);

// Which of the weight's sizes is cut: each rank has its share of it, as large as it likes.
enum class Split : std::uint8_t { nothing, n, k };

Split split_of(Operator op);

// How many rows that is for a rank.
std::int64_t count(Rows rows, std::int64_t m, int rank, int world);

}  // namespace plait::ops
