// The largest worlds.
#include <gtest/gtest.h>

#include "predict/operator.h"

namespace plait::predict {
namespace {

TEST(PredictedOperator, AThousandRanks) {
  const Machine machine = {
      .device = find_device("h100"), .network = find_network("nvlink4"), .ranks = 1024};
  const Problem problem = {.op = Operator::matmul_reduce_scatter, .m = 2048, .n = 1024, .k = 8192};
  const base::Nanoseconds time = predict(machine, problem, {.schedule = Schedule::fused}).time;
  // Every rank gets 1023 shares of its two rows through its port.
  const double through_port = 1023.0 * 2 * 1024 * 4 / machine.network.link.bytes_per_second * 1e9;
  EXPECT_GT(static_cast<double>(time), through_port);
}

}  // namespace
}  // namespace plait::predict
