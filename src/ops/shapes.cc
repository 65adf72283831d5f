#include "ops/shapes.h"

#include "plait/collectives.h"

namespace plait::ops {

Shapes shapes_of(Operator op) {
  switch (op) {
    case Operator::matmul:
    case Operator::matmul_all_reduce:
    case Operator::all_reduce_matmul:
      break;
    case Operator::matmul_reduce_scatter:
    case Operator::reduce_scatter_matmul:
      return {.x = Rows::all, .out = Rows::own};
    case Operator::matmul_all_gather:
    case Operator::all_gather_matmul:
      return {.x = Rows::own, .out = Rows::all};
  }
  return {.x = Rows::all, .out = Rows::all};
}

std::int64_t share_of(std::int64_t whole, int rank, int world) {
  return static_cast<std::int64_t>(
      balanced_shard(static_cast<std::size_t>(whole), rank, world).count);
}

std::int64_t count(Rows rows, std::int64_t m, int rank, int world) {
  return rows == Rows::all ? m : share_of(m, rank, world);
}

}  // namespace plait::ops
