#include "ops/shapes.h"

#include "plait/collectives.h"

namespace plait::ops {

Range shard_of(std::int64_t whole, int rank, int world) {
  const Shard shard = balanced_shard(static_cast<std::size_t>(whole), rank, world);
  const auto begin = static_cast<std::int64_t>(shard.offset);
  return {begin, begin + static_cast<std::int64_t>(shard.count)};
}

}  // namespace plait::ops
