// A product that is waited for, and one that is left out: what benchmarks of more ranks than
// processors, and of collectives alone, stand on.
#include "overlap/multiplier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "comm/core/timed_product.h"
#include "comm/session/state.h"
#include "plait/communicator.h"

namespace plait::overlap {
namespace {

constexpr std::int64_t kRows = 8;
constexpr std::int64_t kSize = 64;  // of n and k
constexpr std::int64_t kFlops = 2 * kRows * kSize * kSize;
constexpr std::int64_t kPoll = 1000;  // microseconds
constexpr float kUntouched = -7;

class TimedMultiplier : public testing::Test {
 protected:
  TensorView view(std::vector<float>& of) {
    return {.data = of.data(),
            .dtype = Dtype::f32,
            .rows = static_cast<std::int64_t>(of.size()) / kSize,
            .cols = kSize,
            .row_stride = kSize};
  }

  void multiply(std::optional<double> ns_per_flop) {
    std::fill(out_.begin(), out_.end(), kUntouched);
    polls_ = 0;
    run_in_threads(1, [&](Communicator& comm) {
      comm::Group& group = comm.state().group();
      Multiplier multiplier(select_gemm({.m = kRows,
                                         .n = kSize,
                                         .k = kSize,
                                         .x = Dtype::f32,
                                         .weight = Dtype::f32,
                                         .out = Dtype::f32},
                                        {.threads = 1}),
                            &group);
      comm::TimedProduct timed(ns_per_flop.value_or(0));
      std::optional<comm::ScopedExecutor> scoped;
      if (ns_per_flop) scoped.emplace(group, timed);
      multiplier.begin(
          {.x = view(x_),
           .weight = WeightView{.view = view(weight_), .layout = WeightLayout::out_in}},
          {.poll = kPoll});
      const base::Nanoseconds begin = base::now();
      multiplier.multiply_rows(view(x_), view(out_), [this] { ++polls_; });
      taken_ = base::now() - begin;
    });
  }

  bool is_untouched() const {
    return std::all_of(out_.begin(), out_.end(), [](float one) { return one == kUntouched; });
  }

  std::vector<float> x_ = std::vector<float>(kRows * kSize, 1);
  std::vector<float> weight_ = std::vector<float>(kSize * kSize, 1);
  std::vector<float> out_ = std::vector<float>(kRows * kSize);
  int polls_ = 0;
  base::Nanoseconds taken_ = 0;
};

TEST_F(TimedMultiplier, IsMultipliedWithoutATime) {
  multiply({});
  EXPECT_TRUE(std::all_of(out_.begin(), out_.end(), [](float one) { return one == kSize; }));
}

// A sleeper wakes late, never early.
TEST_F(TimedMultiplier, TakesItsTimeAndPollsMeanwhile) {
  // The time is long enough that a rank still polls when others take its core for a while.
  constexpr base::Nanoseconds kLong = 200 * base::kMillisecond;
  multiply(double{kLong} / kFlops);
  EXPECT_GE(taken_, kLong - base::kMicrosecond);
  EXPECT_GE(polls_, 1);
  EXPECT_TRUE(is_untouched());
}

TEST_F(TimedMultiplier, IsLeftOutAtNoTime) {
  multiply(0.0);
  EXPECT_EQ(polls_, 0);
  EXPECT_TRUE(is_untouched());
}

}  // namespace
}  // namespace plait::overlap
