// Operators of ranks on several hosts, some of which share memory: the same bits as on one host,
// and of a host's partial sums only their sum goes to another.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/sanitized.h"
#include "conformance/descriptors.h"
#include "conformance/ranks.h"
#include "gemm/matrix.h"
#include "plait/collectives.h"
#include "plait/ops.h"
#include "tensor/compare.h"

namespace plait {
namespace {

constexpr std::int64_t kRows = 203;
constexpr std::int64_t kColumns = 300;

// One rank's share of k, and all rows of the sum. Every process can make those of every rank.
struct Share {
  Share(Dtype dtype, int rank)
      : x(dtype, kRows, 96, static_cast<std::uint64_t>(rank) + 1),
        w(dtype, kColumns, 96, static_cast<std::uint64_t>(rank) + 50),
        bias(Dtype::f32, 1, kColumns, 3),
        out(dtype, kRows, kColumns) {}

  void all_reduce(Communicator& comm, const Plan& plan, Dtype wire) {
    matmul_all_reduce(x.view, WeightView{w.view, WeightLayout::out_in}, out.view, comm,
                      {.wire = wire, .plan = plan, .threads = 1, .bias = bias.view});
  }

  Matrix x;
  Matrix w;
  Matrix bias;
  Matrix out;
};

// The result of ranks that are all on one host.
Matrix sum_on_one_host(Dtype dtype, Dtype wire, int world) {
  Matrix want(dtype, kRows, kColumns);
  run_in_threads(world, [&](Communicator& comm) {
    Share share(dtype, comm.rank());
    share.all_reduce(comm, parse_plan("serial"), wire);
    if (comm.rank() == 0) want = std::move(share.out);
  });
  return want;
}

struct Sum {
  Sum(Dtype of, Dtype on_wire, int world)
      : dtype(of), wire(on_wire), want(sum_on_one_host(of, on_wire, world)) {}

  Dtype dtype;
  Dtype wire;
  Matrix want;
};

// In a wire that rounds, a host's sum would be rounded once more: it is not made.
std::vector<Sum> sums_on_one_host(int world) {
  std::vector<Sum> sums;
  sums.emplace_back(Dtype::f32, Dtype::f32, world);
  sums.emplace_back(Dtype::bf16, Dtype::f32, world);
  sums.emplace_back(Dtype::f32, Dtype::bf16, world);
  sums.emplace_back(Dtype::bf16, Dtype::s8, world);
  return sums;
}

void expect_sums(const Sum& sum, Communicator& comm) {
  for (const char* text :
       {"serial", "pipelined parts=3", "pipelined parts=3 axis=rows", "fused", "fused chunk=64"}) {
    const Plan plan = parse_plan(text);
    Share share(sum.dtype, comm.rank());
    for (int call = 0; call < 2; ++call) {
      share.all_reduce(comm, plan, sum.wire);
      EXPECT_TRUE(static_cast<bool>(tensor::same_bits(share.out.view, sum.want.view)))
          << text << " on rank " << comm.rank() << " of " << comm.world();
    }
  }
}

TEST(Hosts, OperatorsHaveTheBitsOfOneHost) {
  std::vector<std::vector<int>> placements = {{0, 0, 0, 1}, {0, 0, 1, 1, 2, 2}};
  if (!kIsSlow)
    placements.insert(placements.end(), {{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 0, 1, 1, 1, 1}});
  for (const auto& hosts : placements) {
    const int world = static_cast<int>(hosts.size());
    // Made before the ranks are forked, which all compare with them.
    const std::vector<Sum> sums = sums_on_one_host(world);
    over_hosts(hosts)(world, [&](Communicator& comm) {
      for (const Sum& sum : sums) expect_sums(sum, comm);
    });
  }
}

// The blocks that a rank sends to other hosts, in a world of two hosts of two ranks: each rank's
// own of the sum (or of x), and half of what there is without regard to hosts.
TEST(Hosts, WhatCrossesCrossesOnce) {
  over_hosts({0, 0, 1, 1})(4, [](Communicator& comm) {
    // Blocks of 256 KiB: what is sent around them is little beside them.
    constexpr std::int64_t kM = 1024;
    constexpr std::int64_t kN = 256;
    const Matrix x(Dtype::f32, kM, kN, 1);
    const Matrix w(Dtype::f32, kN, kN, 2);
    const Matrix out(Dtype::f32, kM, kN);
    const WeightView weight = {w.view, WeightLayout::out_in};
    const ConstTensorView shard = x.view.row_range(0, kM / 4);
    const auto expect_blocks = [&](std::int64_t blocks, const auto& call) {
      call();
      barrier(comm);
      const std::int64_t before = tcp_bytes_sent();
      call();
      barrier(comm);  // all ranks have received what they need
      const std::int64_t sent = tcp_bytes_sent() - before;
      const std::int64_t block = kM / 4 * kN * 4;
      EXPECT_GE(sent, blocks * block - block / 32);
      EXPECT_LT(sent, blocks * block + block / 4);
    };
    expect_blocks(1, [&] { matmul_all_gather(shard, weight, out.view, comm, {.threads = 1}); });
    for (const char* text : {"serial", "fused"}) {
      const OpOptions options = {.plan = parse_plan(text), .threads = 1};
      expect_blocks(1, [&] {
        matmul_reduce_scatter(x.view, weight, out.view.row_range(0, kM / 4), comm, options);
      });
      expect_blocks(1, [&] { all_gather_matmul(shard, weight, out.view, comm, options); });
      expect_blocks(2, [&] { matmul_all_reduce(x.view, weight, out.view, comm, options); });
    }
  });
}

}  // namespace
}  // namespace plait
