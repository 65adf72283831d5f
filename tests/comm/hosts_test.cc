// Collectives of ranks on several hosts, some of which share memory: their results have the same
// bits as on one host, and only the sum of a host's parts is sent to another host.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "conformance/contributions.h"
#include "conformance/descriptors.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait::conformance {
namespace {

// Thirds, whose sums are rounded: another order gives other bits.
std::vector<float> thirds(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>((i + static_cast<std::size_t>(rank)) % 13 + 1) / 3;
  return values;
}

// Sums above the size of one step, and a shard of each.
void expect_sums(Communicator& comm, Dtype in, Dtype out) {
  for (const std::size_t count : {std::size_t{3}, std::size_t{20'011}, std::size_t{150'001}}) {
    const std::vector<float> whole = added_as_tree(comm.world(), [&](int rank) {
      std::vector<float> part = thirds(rank, count);
      std::vector<std::byte> narrow(count * size_of(in));
      convert(part.data(), Dtype::f32, narrow.data(), in, count);
      convert(narrow.data(), in, part.data(), Dtype::f32, count);
      return part;
    });
    std::vector<std::byte> want(count * size_of(out));
    convert(whole.data(), Dtype::f32, want.data(), out, count);
    std::vector<std::byte> mine(count * size_of(in));
    convert(thirds(comm.rank(), count).data(), Dtype::f32, mine.data(), in, count);
    std::vector<std::byte> sum(want.size());
    all_reduce({mine.data(), count, in}, {sum.data(), count, out}, comm);
    EXPECT_TRUE(sum == want) << name(in) << " " << count << " on rank " << comm.rank();
    const Shard shard = balanced_shard(count, comm.rank(), comm.world());
    std::vector<std::byte> part(shard.count * size_of(out));
    reduce_scatter({mine.data(), count, in}, {part.data(), shard.count, out}, comm);
    EXPECT_TRUE(part == slice(want, shard.offset, shard.count, out))
        << name(in) << " " << count << " on rank " << comm.rank();
    std::vector<std::byte> all(want.size());
    all_gather({part.data(), shard.count, out}, {all.data(), count, out}, comm);
    EXPECT_TRUE(all == want) << name(in) << " " << count << " on rank " << comm.rank();
  }
}

TEST(CollectivesOfHosts, HaveTheBitsOfOneHost) {
  const std::vector<std::vector<int>> placements = {{0, 0, 0, 0},       {0, 0, 1, 1},
                                                    {0, 1, 2, 3},       {0, 1, 0, 1},
                                                    {0, 0, 1, 1, 2, 2}, {0, 0, 0, 0, 1, 1, 1, 1}};
  for (const auto& hosts : placements) {
    over_hosts(hosts)(static_cast<int>(hosts.size()), [](Communicator& comm) {
      expect_sums(comm, Dtype::f32, Dtype::f32);
      expect_sums(comm, Dtype::bf16, Dtype::bf16);
      expect_sums(comm, Dtype::bf16, Dtype::f32);
      expect_sums(comm, Dtype::s8, Dtype::s8);
    });
  }
}

// The blocks that a rank sends to other hosts: each rank's shard of the parts, the sums or the
// gathered vector. If ranks ignored hosts, they would send twice as many with two ranks on a host,
// and four times as many with four.
void expect_blocks(Communicator& comm) {
  constexpr std::size_t kCount = 1 << 20;
  const std::size_t shard = kCount / static_cast<std::size_t>(comm.world());
  const auto expect = [&](std::int64_t bytes, const auto& call) {
    call();
    barrier(comm);
    const std::int64_t before = tcp_bytes_sent();
    call();
    barrier(comm);  // all ranks have received what they need
    const std::int64_t sent = tcp_bytes_sent() - before;
    EXPECT_GE(sent, bytes - bytes / 32);
    EXPECT_LT(sent, bytes + bytes / 4) << "rank " << comm.rank() << " of " << comm.world();
  };
  const std::vector<float> in(kCount, 1.0F);
  std::vector<float> out(kCount);
  std::vector<float> part(shard);
  const auto f32 = static_cast<std::int64_t>(shard) * 4;
  expect(2 * f32, [&] { all_reduce({in.data(), kCount}, {out.data(), kCount}, comm); });
  expect(f32, [&] { reduce_scatter({in.data(), kCount}, {part.data(), shard}, comm); });
  expect(f32, [&] { all_gather({part.data(), shard}, {out.data(), kCount}, comm); });
  // Two parts of bf16 have as many bytes as their sum in f32, so the parts are sent without being
  // added first.
  const std::vector<std::uint16_t> narrow(kCount);
  std::vector<std::uint16_t> narrow_out(kCount);
  expect(f32 + f32 / 2, [&] {
    all_reduce({narrow.data(), kCount, Dtype::bf16}, {narrow_out.data(), kCount, Dtype::bf16},
               comm);
  });
}

TEST(CollectivesOfHosts, SendWhatCrossesOnce) {
  over_hosts({0, 0, 1, 1})(4, expect_blocks);
  over_hosts({0, 0, 0, 0, 1, 1, 1, 1})(8, expect_blocks);
}

}  // namespace
}  // namespace plait::conformance
