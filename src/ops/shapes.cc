#include "ops/shapes.h"

#include "plait/collectives.h"

namespace plait::ops {

std::int64_t share_of(std::int64_t whole, int rank, int world) {
  return static_cast<std::int64_t>(
      balanced_shard(static_cast<std::size_t>(whole), rank, world).count);
}

std::int64_t count(Rows rows, std::int64_t m, int rank, int world) {
  return rows == Rows::all ? m : share_of(m, rank, world);
}

}  // namespace plait::ops
