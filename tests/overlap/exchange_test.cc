// Ranks that cut one call differently find out when its chunks are taken.
#include "overlap/exchange.h"

#include <gtest/gtest.h>

#include "conformance/ranks.h"
#include "overlap/other_cuts.h"

namespace plait::overlap {
namespace {

using other_cuts::gather_rows;
using other_cuts::kWorld;
using other_cuts::sum;

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
