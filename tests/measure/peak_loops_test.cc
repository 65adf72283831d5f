#include "measure/peak_loops.h"

#include <gtest/gtest.h>

#include <string>

namespace plait::measure {
namespace {

class PeakLoops : public testing::TestWithParam<Dtype> {};

TEST_P(PeakLoops, EveryLoopThatThisProcessorHasRuns) {
  int usable = 0;
  for (const PeakLoop& loop : peak_loops(GetParam())) {
    if (!loop.usable()) continue;
    ++usable;
    const double operations = loop.run(3);
    EXPECT_GT(operations, 0) << loop.name;
    EXPECT_EQ(loop.run(1), operations) << loop.name << ": those of one round, however many ran";
  }
  EXPECT_GE(usable, 1);
  EXPECT_TRUE(peak_loops(GetParam()).back().usable());
}

INSTANTIATE_TEST_SUITE_P(Operands, PeakLoops, testing::Values(Dtype::bf16, Dtype::f32),
                         [](const auto& one) { return std::string(name(one.param)); });

}  // namespace
}  // namespace plait::measure
