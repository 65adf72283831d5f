#include <algorithm>

#include "base/check.h"
#include "plait/trace.h"
#include "trace/json.h"
#include "trace/pack.h"

namespace plait {

void write_json(const std::string& path, std::span<const std::vector<std::byte>> packs) {
  std::vector<trace::RankRecords> ranks;
  ranks.reserve(packs.size());
  for (const auto& bytes : packs) ranks.push_back(trace::unpack(bytes));
  std::ranges::sort(ranks, {}, &trace::RankRecords::rank);
  const auto twin = std::ranges::adjacent_find(ranks, {}, &trace::RankRecords::rank);
  PLAIT_CHECK(twin == ranks.end(), "trace: two of the packs are of rank ", twin->rank);
  trace::write_json(path, ranks);
}

}  // namespace plait
