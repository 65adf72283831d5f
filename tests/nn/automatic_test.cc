// Layers between hosts with automatic plans (plait/tune.h).
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "conformance/ranks.h"
#include "folder.h"
#include "nn/layer.h"
#include "plait/tune.h"
#include "plan/cache.h"
#include "plan/machine.h"
#include "tensor/compare.h"
#include "tune/automatic_case.h"
#include "tune/online.h"

namespace plait {
namespace {

// Remembers the plans that calls have followed, of which all but serial ones take half the time.
class Followed final : public PlanSource {
 public:
  explicit Followed(const PlanSource& source) : clear_(source) {}
  std::optional<Plan> find(const PlanKey& key) const override { return clear_.find(key); }
  std::optional<Plan> next(const PlanKey& key) const override { return clear_.next(key); }
  void took(const PlanKey& key, const Plan& plan, std::int64_t nanoseconds) const override {
    of_[std::string(name(key.op))].insert(name(plan));
    clear_.took(key, plan, nanoseconds);
  }
  std::map<std::string, std::set<std::string>> take() { return std::exchange(of_, {}); }

 private:
  const ClearTimes clear_;
  mutable std::map<std::string, std::set<std::string>> of_;
};

class LayersBetweenHosts : public testing::TestWithParam<LayerKind> {
 protected:
  const test::Folder folder_;
};

TEST_P(LayersBetweenHosts, TryPlansAndKeepTheFastest) {
  over_hosts({0, 0, 1})(3, [&](Communicator& comm) {
    const LayerProblem serial(GetParam(), 100, comm);
    run_step(serial, comm, {.column_backward = true, .operators = {.plan = Plan{}}});
    const auto automatic = automatic_plans(comm, {.cache = folder_ / "plans"});
    Followed plans(*automatic);
    const auto step = [&] {
      const LayerProblem one(GetParam(), 100, comm);
      run_step(one, comm, {.column_backward = true, .operators = {.plans = &plans}});
      EXPECT_TRUE(tensor::same_bits(one.out.view, serial.out.view));
      EXPECT_TRUE(tensor::same_bits(one.grad_x.view, serial.grad_x.view));
      EXPECT_TRUE(tensor::same_bits(one.grad_weight.view, serial.grad_weight.view));
    };
    for (std::size_t i = 0; i < tune::Online::calls(5); ++i) step();
    const auto tried = plans.take();
    EXPECT_EQ(tried.size(), 2U) << "forward and backward have an operator each";
    for (const auto& [op, names] : tried) {
      EXPECT_TRUE(names.contains("serial")) << op;
      EXPECT_TRUE(names.contains("fused")) << op;
    }
    for (int i = 0; i < 2; ++i) step();
    for (const auto& [op, names] : plans.take()) {
      EXPECT_EQ(names.size(), 1U) << op;
      EXPECT_FALSE(names.contains("serial")) << op;
    }
  });
  const auto kept = plan::load_cache(folder_ / "plans", plan::machine_fingerprint());
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->entries().size(), 2U);
  for (const auto& [problem, entry] : kept->entries())
    EXPECT_TRUE(parse_plan_key(problem).link) << "plans are those of a network: " << problem;
}

INSTANTIATE_TEST_SUITE_P(Layers, LayersBetweenHosts,
                         testing::Values(LayerKind::column, LayerKind::row),
                         [](const auto& layer) { return name_of(layer.param); });

}  // namespace
}  // namespace plait
