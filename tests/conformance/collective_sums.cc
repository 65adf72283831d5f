// Sums that are rounded to a dtype other than that of their parts, and sums of ranks whose threads
// have different floating-point modes.
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/collectives.h"
#include "conformance/contributions.h"
#include "plait/collectives.h"
#include "tensor/float_modes.h"

namespace plait::conformance {

TEST_P(CollectivesConformance, SumsMayBeOfAnotherDtypeThanTheirParts) {
  run([&](Communicator& comm) {
    constexpr std::pair<Dtype, Dtype> kPairs[] = {{Dtype::f32, Dtype::bf16},
                                                  {Dtype::bf16, Dtype::f32},
                                                  {Dtype::f32, Dtype::f16},
                                                  {Dtype::f16, Dtype::bf16}};
    for (const auto& [in, out] : kPairs) {
      for (const std::size_t count : kSizes) {
        const auto mine = contribution(comm.rank(), count, in);
        const auto sum = sum_of_all(world(), count, in, out, 0);
        Guarded all(count, out);
        all_reduce({mine.data(), count, in}, {all.data(), count, out}, comm);
        EXPECT_TRUE(all.contents() == sum) << name(in) << " to " << name(out) << " " << count;
        const Shard shard = balanced_shard(count, comm.rank(), world());
        Guarded part(shard.count, out);
        reduce_scatter({mine.data(), count, in}, {part.data(), shard.count, out}, comm);
        EXPECT_TRUE(part.contents() == slice(sum, shard.offset, shard.count, out))
            << name(in) << " to " << name(out) << " " << count << " in shards";
      }
    }
  });
}

namespace {

// Thirds, whose sums need rounding. Every fifth is so small that it and its sums are denormal.
std::vector<float> thirds(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto whole = static_cast<float>((i + static_cast<std::size_t>(rank)) % 7 + 1);
    values[i] = whole / 3 * (i % 5 == 0 ? 0x1p-130F : 1);
  }
  return values;
}

std::vector<float> sum_of_thirds(int world, std::size_t count) {
  return added_as_tree(world, [&](int rank) { return thirds(rank, count); });
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_P(CollectivesConformance, GiveTheSameBitsInWhateverModesTheRanksCompute) {
  run([&](Communicator& comm) {
    for (const std::size_t count : {std::size_t{4}, std::size_t{1000}, std::size_t{40003}}) {
      const std::vector<float> mine = thirds(comm.rank(), count);
      const std::vector<float> sum = sum_of_thirds(world(), count);
      const Shard shard = balanced_shard(count, comm.rank(), world());
      const std::vector<float> own(
          sum.begin() + static_cast<std::ptrdiff_t>(shard.offset),
          sum.begin() + static_cast<std::ptrdiff_t>(shard.offset + shard.count));
      for (const FloatMode& mode : float_modes()) {
        for (const int odd_one : {-1, 0, world() - 1}) {  // the only rank in the mode; -1: all are
          std::vector<float> all(count);
          std::vector<float> later(count);
          std::vector<float> part(shard.count);
          const bool enters = odd_one < 0 || odd_one == comm.rank();
          if (enters) mode.enter();
          const auto before = float_control();
          all_reduce({mine.data(), count}, {all.data(), count}, comm);
          reduce_scatter({mine.data(), count}, {part.data(), shard.count}, comm);
          Pending pending = start_all_reduce({mine.data(), count}, {later.data(), count}, comm);
          while (!pending.done()) std::this_thread::yield();
          const auto after = float_control();
          if (enters) mode.leave();
          EXPECT_EQ(before, after) << mode.name;
          EXPECT_TRUE(same_bits(all, sum)) << mode.name << ", rank " << odd_one << ", " << count;
          EXPECT_TRUE(same_bits(later, sum)) << mode.name << ", rank " << odd_one << ", " << count;
          EXPECT_TRUE(same_bits(part, own)) << mode.name << ", rank " << odd_one << ", " << count;
        }
      }
    }
  });
}

}  // namespace plait::conformance
