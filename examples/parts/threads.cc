// Four ranks in one process gather their shards while they compute, and write a timeline of it.
//
//   parts/threads timeline.json
#include <plait/plait.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

constexpr int kWorld = 4;
constexpr std::size_t kShard = 64 * 1024;

float compute_a_tile(std::vector<float>& tile) {
  for (float& value : tile) value = value * 0.999F + 1.0F;
  return tile.front();
}

void overlap(plait::Communicator& comm, plait::Trace& trace) {
  const std::vector<float> mine(kShard, static_cast<float>(comm.rank()));
  std::vector<float> all(kShard * kWorld);
  std::vector<float> tile(4096);

  plait::Pending gathering =
      plait::start_all_gather({mine.data(), mine.size()}, {all.data(), all.size()}, comm);
  int tiles = 0;
  do {
    const plait::Span span(&trace, plait::Lane::compute, "tile", {.chunk = tiles++});
    compute_a_tile(tile);
  } while (!gathering.done());

  bool right = true;
  for (int rank = 0; rank < kWorld; ++rank) {
    const auto shard = all.begin() + static_cast<std::ptrdiff_t>(kShard) * rank;
    right &= std::all_of(shard, shard + kShard,
                         [&](float value) { return value == static_cast<float>(rank); });
  }
  if (!right) comm.abort("what was gathered is not what was sent");
}

}  // namespace

int main(int argc, char** argv) {
  const plait::ThreadGroup group(kWorld);
  std::atomic<int> failures{0};
  const auto be_rank = [&](int rank) {
    try {
      plait::Trace trace(rank);  // the rank's collectives write to it too
      plait::Communicator comm = group.join(rank, {.trace = &trace});
      overlap(comm, trace);
      if (argc > 1) plait::write_timeline(argv[1], trace, comm);
    } catch (const plait::Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ++failures;
    }
  };
  std::vector<std::thread> ranks;
  ranks.reserve(kWorld);
  for (int rank = 0; rank < kWorld; ++rank) ranks.emplace_back(be_rank, rank);
  for (std::thread& rank : ranks) rank.join();
  if (failures > 0) return 1;
  std::printf("%d ranks gathered %zu elements each beside their tiles\n", kWorld, kShard * kWorld);
}
