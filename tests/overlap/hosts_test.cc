// Flows in which the ranks of a host act together bring what flows of single ranks bring. The ranks
// are threads here: who is on which host is only said.
#include "comm/flow/hosts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "comm/session/state.h"
#include "conformance/ranks.h"
#include "gemm/matrix.h"
#include "overlap/block_gather.h"
#include "overlap/block_reduce.h"
#include "tensor/compare.h"

namespace plait::overlap {
namespace {

using comm::Hosts;

// Rows that no world divides, and more chunks than lanes have slots.
constexpr std::int64_t kRows = 53;
constexpr std::int64_t kColumns = 700;

TEST(HostsOfRanks, KnowWhoIsWhere) {
  const Hosts hosts(4, 9, 3);
  EXPECT_EQ(hosts.count(), 3);
  EXPECT_EQ(hosts.here(), 1);
  EXPECT_EQ(hosts.mates(), (std::vector{5, 3}));
  EXPECT_EQ(hosts.counterparts(), (std::vector{7, 1}));
  EXPECT_EQ(hosts.counterpart_of(5, 0), 2);
  EXPECT_EQ(hosts.host_at(0), 1);
  EXPECT_EQ(hosts.host_at(2), 0);
}

TEST(HostsOfRanks, OfOneRankEach) {
  const Hosts hosts(1, 3, 1);
  EXPECT_TRUE(hosts.mates().empty());
  EXPECT_EQ(hosts.counterparts(), (std::vector{2, 0}));
}

class Lanes {
 public:
  explicit Lanes(Communicator& comm) : exchange(comm.state().group(), 1) {
    const MailboxDesc desc = Exchange::mailbox_for(1, 1 << 16);
    exchange.use(comm.state().operator_mailbox(desc, desc, {}));
    exchange.begin(comm.state().begin_call({.operation = Operation::matmul_all_reduce}));
  }

  template <class Flow>
  void run(Flow& flow) {
    exchange.wait(
        [&] {
          flow.step();
          return flow.done();
        },
        [&] { return flow.awaited(); });
  }

  Exchange exchange;
};

Cut cut_for(int world) {
  std::vector<Range> columns;
  for (std::int64_t begin = 0; begin < kColumns; begin += 50)
    columns.push_back({begin, begin + 50});
  return Cut::by_columns(Ownership::sharded(kRows, kColumns, world), columns);
}

// This rank's rows of the sum.
Matrix sum(Communicator& comm, int per_host, const float* bias) {
  const Cut cut = cut_for(comm.world());
  Lanes lanes(comm);
  const Matrix parts(Dtype::f32, kRows, kColumns, static_cast<std::uint64_t>(comm.rank()) + 1);
  const Range own = Ownership::sharded(kRows, kColumns, comm.world())
                        .of_rank[static_cast<std::size_t>(comm.rank())];
  Matrix out(Dtype::f32, length(own), kColumns);
  BlockReduce reduce(lanes.exchange, cut, Dtype::f32, 1, per_host);
  reduce.begin({.out = out.view, .first_row = own.begin, .bias = bias});
  for (std::size_t part = 0; part < cut.parts().size(); ++part) {
    std::vector<ConstTensorView> blocks;
    const Range& columns = cut.parts()[part].columns;
    for (const Range& rows : cut.parts()[part].rows()) {
      blocks.emplace_back(
          parts.view.row_range(rows.begin, rows.end).column_range(columns.begin, columns.end));
    }
    reduce.ready(static_cast<int>(part), blocks);
    reduce.step();
  }
  lanes.run(reduce);
  return out;
}

struct Start {
  int world;
  int per_host;
};
constexpr Start kStarts[] = {{4, 2}, {6, 2}, {8, 4}, {8, 2}, {12, 4}};

TEST(HostsOfRanks, AddUpToTheSameBits) {
  for (const Start& start : kStarts) {
    run_as_threads(start.world, [per_host = start.per_host](Communicator& comm) {
      const Matrix bias(Dtype::f32, 1, kColumns, 77);
      for (const float* added :
           {static_cast<const float*>(nullptr), static_cast<const float*>(bias.view.row(0))}) {
        const Matrix want = sum(comm, 1, added);
        const Matrix got = sum(comm, per_host, added);
        EXPECT_TRUE(static_cast<bool>(tensor::same_bits(got.view, want.view)))
            << "rank " << comm.rank() << " of " << comm.world();
      }
    });
  }
}

TEST(HostsOfRanks, BringEveryRowToEveryRank) {
  for (const Start& start : kStarts) {
    run_as_threads(start.world, [per_host = start.per_host](Communicator& comm) {
      const Cut cut = cut_for(comm.world());
      Lanes lanes(comm);
      const Matrix whole(Dtype::bf16, kRows, kColumns, 5);
      const Range own = Ownership::sharded(kRows, kColumns, comm.world())
                            .of_rank[static_cast<std::size_t>(comm.rank())];
      const Matrix all(Dtype::bf16, kRows, kColumns, 6);
      const ConstTensorView mine = whole.view.row_range(own.begin, own.end);
      BlockGather gather(lanes.exchange, cut, Way::out, per_host);
      gather.begin({.own = mine, .first_row = own.begin, .all = all.view});
      gather.ready(cut.chunks() / 2);
      gather.step();
      gather.ready(cut.chunks());
      lanes.run(gather);
      for (int rank = 0; rank < comm.world(); ++rank) {
        if (rank == comm.rank()) continue;
        EXPECT_EQ(gather.received(rank), cut.chunks());
        const Range rows = Ownership::sharded(kRows, kColumns, comm.world())
                               .of_rank[static_cast<std::size_t>(rank)];
        EXPECT_TRUE(static_cast<bool>(tensor::same_bits(
            all.view.row_range(rows.begin, rows.end), whole.view.row_range(rows.begin, rows.end))))
            << "rows of " << rank << " on " << comm.rank() << " of " << comm.world();
      }
    });
  }
}

}  // namespace
}  // namespace plait::overlap
