// An operator that is ready to be measured (tune/op_case.h).
#include "tune/op_case.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "conformance/ranks.h"
#include "ops/shapes.h"
#include "plait/trace.h"
#include "trace/pack.h"

namespace plait::tune {
namespace {

// The bytes of all chunks that this rank has sent over an emulated link.
std::int64_t bytes_sent(const Trace& trace) {
  const trace::RankRecords all = trace::unpack(trace.pack());
  return std::accumulate(all.records.begin(), all.records.end(), std::int64_t{0},
                         [&](std::int64_t sum, const trace::Record& one) {
                           const bool is_chunk =
                               one.kind == trace::Kind::flight && all.labels[one.label] == "chunk";
                           return is_chunk ? sum + one.args.bytes : sum;
                         });
}

TEST(OpCase, KnowsWhatEachOperatorSends) {
  run_as_threads(
      2,
      [](Communicator& comm) {
        for (const OperatorTraits& traits : kOperatorTraits) {
          PlanKey key = {.op = *parse_operator(traits.name), .m = 384, .n = 512, .k = 256};
          key.wire = ops::wire_of(key.op, key.x, key.wire);
          key.world = 2;
          const OpCase one({.key = key}, comm);
          const auto runner = one.runner({.schedule = Schedule::serial}, comm);
          Trace trace(comm.rank());
          comm.set_trace(&trace);
          runner->run();
          comm.set_trace(nullptr);
          EXPECT_EQ(static_cast<double>(bytes_sent(trace)), one.bytes_on_link()) << traits.name;
        }
      },
      {.link = parse_link("100gbit,5us")});
}

TEST(OpCase, CountsEachRanksOperands) {
  PlanKey key = {.op = Operator::matmul, .m = 10, .n = 20, .k = 31, .weight = "f32"};
  EXPECT_EQ(OpCase::operand_bytes(key), 2.0 * (10 * 31 + 10 * 20) + 4 * 20 * 31);
  key.world = 2;
  key.weight = "s8:channel";  // made from bf16, as x is
  key.op = Operator::matmul_all_reduce;
  EXPECT_EQ(OpCase::operand_bytes(key), 2.0 * 2 * (10 * 16 + 10 * 20 + 20 * 16));
  key.op = Operator::all_gather_matmul;
  EXPECT_EQ(OpCase::operand_bytes(key), 2.0 * 2 * (10 * 31 + 10 * 10 + 10 * 31));
}

}  // namespace
}  // namespace plait::tune
