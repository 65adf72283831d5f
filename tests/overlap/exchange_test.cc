// Ranks that cut one call differently find out when its chunks are taken: rank 0 has larger ones.
#include "overlap/exchange.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "conformance/ranks.h"
#include "gemm/matrix.h"
#include "overlap/block_gather.h"
#include "overlap/block_reduce.h"
#include "overlap/lanes.h"

namespace plait::overlap {
namespace {

constexpr int kWorld = 3;
constexpr std::int64_t kRows = 12;
constexpr std::int64_t kColumns = 600;

// Rank 0 cuts columns in two where the others cut them in three.
Cut cut_of(int rank) {
  const std::int64_t width = rank == 0 ? 300 : 200;
  std::vector<Range> columns;
  for (std::int64_t begin = 0; begin < kColumns; begin += width)
    columns.push_back({begin, begin + width});
  return Cut::by_columns(Ownership::sharded(kRows, kColumns, kWorld), columns);
}

void gather_rows(Communicator& comm) {
  Lanes lanes(comm, cut_of(comm.rank()));  // the mailbox is the same on all, and so is the tag
  const Matrix own(Dtype::f32, kRows / kWorld, kColumns);
  const Matrix all(Dtype::f32, kRows, kColumns);
  BlockGather gather(lanes.exchange, lanes.cut, Way::out);
  gather.begin({.own = own.view, .first_row = comm.rank() * kRows / kWorld, .all = all.view});
  gather.ready(lanes.cut.chunks());
  lanes.finish(gather);
}

void sum(Communicator& comm) {
  Lanes lanes(comm, cut_of(comm.rank()));  // the mailbox is the same on all, and so is the tag
  const Matrix parts(Dtype::f32, kRows, kColumns);
  const Matrix out(Dtype::f32, kRows / kWorld, kColumns);
  BlockReduce reduce(lanes.exchange, lanes.cut, Dtype::f32, 1);
  reduce.begin({.out = out.view, .first_row = comm.rank() * kRows / kWorld});
  for (std::size_t part = 0; part < lanes.cut.parts().size(); ++part)
    reduce.ready(static_cast<int>(part), lanes.blocks(part, parts.view));
  lanes.finish(reduce);
}

// Wherever a rank is when another has found it.
void expect_refusal(Communicator& comm, void (*call)(Communicator& comm)) {
  const Error error = expect_error(Code::mismatch, [&] { call(comm); });
  EXPECT_TRUE(contains(error.what(), "matmul_all_reduce: rank ")) << error.what();
  EXPECT_TRUE(contains(error.what(), " disagree on the size of a chunk: ")) << error.what();
  EXPECT_TRUE(contains(error.what(), "4800") && contains(error.what(), "3200")) << error.what();
}

TEST(Chunks, OfOtherSizesAreRefusedOnEveryRank) {
  for (const auto& runner : {run_as_threads, run_in_processes, run_over_tcp}) {
    runner(kWorld, [](Communicator& comm) { expect_refusal(comm, gather_rows); }, {});
    runner(kWorld, [](Communicator& comm) { expect_refusal(comm, sum); }, {});
  }
  for (const auto& runner : {run_as_threads, run_in_processes}) {
    runner(kWorld, [](Communicator& comm) { expect_refusal(comm, sum); },
           {.link = parse_link("10gbit,20us")});
  }
}

}  // namespace
}  // namespace plait::overlap
