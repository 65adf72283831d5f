// The plan of a problem: settings first, then further sources.
#include <gtest/gtest.h>

#include "plait/settings.h"

namespace plait {
namespace {

// The layers of a model with 5120 hidden and 15360 inner sizes, on 8 ranks.
constexpr std::int64_t kTokens = 16384;
const PlanKey kColumnForward = {
    .op = Operator::all_gather_matmul, .m = kTokens, .n = 15360, .k = 5120, .world = 8};
const PlanKey kColumnBackward = {
    .op = Operator::matmul_reduce_scatter, .m = kTokens, .n = 5120, .k = 15360, .world = 8};

class Fixed final : public PlanSource {
 public:
  explicit Fixed(std::optional<Plan> plan) : plan_(plan) {}
  std::optional<Plan> find(const PlanKey&) const override { return plan_; }

 private:
  std::optional<Plan> plan_;
};

TEST(AShape, IsWhatARankMultiplies) {
  EXPECT_EQ(shape_of(kColumnForward), (ProductShape{.m = 16384, .k = 5120, .n = 1920}));
  EXPECT_EQ(shape_of(kColumnBackward), (ProductShape{.m = 16384, .k = 1920, .n = 5120}));
  PlanKey key = kColumnBackward;
  for (const Operator op : {Operator::matmul, Operator::matmul_all_gather,
                            Operator::reduce_scatter_matmul, Operator::all_reduce_matmul}) {
    key.op = op;
    EXPECT_EQ(shape_of(key), (ProductShape{.m = 16384, .k = 15360, .n = 5120})) << name(op);
  }
  key.op = Operator::matmul_all_reduce;
  EXPECT_EQ(shape_of(key), (ProductShape{.m = 16384, .k = 1920, .n = 5120}));
}

TEST(AShape, IsTheFirstRanksWhereSharesDiffer) {
  const PlanKey key = {.op = Operator::matmul_all_reduce, .m = 3, .n = 7, .k = 10, .world = 4};
  EXPECT_EQ(shape_of(key), (ProductShape{.m = 3, .k = 3, .n = 7}));
}

TEST(AShape, OfAnotherCallIsThatOfItsWeight) {
  PlanKey key = {.op = Operator::matmul_reduce_scatter, .m = 10, .n = 21, .k = 30, .world = 4};
  for (const Operator op : {Operator::matmul_reduce_scatter, Operator::all_gather_matmul}) {
    key.op = op;
    key.family = Family::ulysses;
    EXPECT_EQ(shape_of(key), (ProductShape{.m = 3, .k = 30, .n = 21})) << name(op);
    key.family = Family::columns;
    EXPECT_EQ(shape_of(key), (ProductShape{.m = 10, .k = 30, .n = 6})) << name(op);
    key.family = Family::experts;
    EXPECT_EQ(shape_of(key), (ProductShape{.m = 10, .k = 30, .n = 21})) << name(op);
  }
}

TEST(SettingsPlans, OfOneShapeReachALayerOfExperts) {
  const SettingsPlans plans(
      parse_settings("plan = \"fused\"\ncustomized = {\"[8,2048,768]\" = 1}"));
  PlanKey key = {.op = Operator::all_gather_matmul,
                 .m = 8,
                 .n = 768,
                 .k = 2048,
                 .world = 2,
                 .family = Family::experts,
                 .columns = 128};
  EXPECT_EQ(plans.find(key), parse_plan("serial"));
  key.n = 1536;  // a share of which is 768
  EXPECT_EQ(plans.find(key), parse_plan("fused"));
}

TEST(SettingsPlans, TellForwardFromBackward) {
  const SettingsPlans plans(
      parse_settings("coc_parallel_num = 2\n[customized]\n\"[16384, 5120, 1920]\" = 8\n\"[16384, "
                     "1920, 5120]\" = 1"));
  EXPECT_EQ(plans.find(kColumnForward), parse_plan("pipelined parts=8"));
  EXPECT_EQ(plans.find(kColumnBackward), parse_plan("serial"));
  PlanKey other = kColumnForward;
  other.m = 8192;
  EXPECT_EQ(plans.find(other), parse_plan("pipelined parts=2"));
}

TEST(SettingsPlans, AskFurtherSourcesInTheirOrder) {
  const Fixed nothing({});
  const Fixed cache(parse_plan("pipelined parts=5"));
  const Fixed model(parse_plan("serial"));
  const std::vector<const PlanSource*> further = {&nothing, &cache, &model};
  EXPECT_EQ(SettingsPlans({}, further).find(kColumnForward), parse_plan("pipelined parts=5"));
  EXPECT_EQ(SettingsPlans({.plan = parse_plan("fused")}, further).find(kColumnForward),
            parse_plan("fused"));
  EXPECT_EQ(SettingsPlans(parse_settings("customized = {\"[16384,5120,1920]\" = -1}"), further)
                .find(kColumnForward),
            parse_plan("fused"));
  EXPECT_EQ(SettingsPlans({}).find(kColumnForward), std::nullopt);
}

// Gives every call another plan, and records what it is told.
class Trying final : public PlanSource {
 public:
  std::optional<Plan> find(const PlanKey&) const override { return Plan{.parts = 1}; }
  std::optional<Plan> next(const PlanKey&) const override { return Plan{.parts = 2 + told}; }
  void took(const PlanKey&, const Plan& plan, std::int64_t) const override {
    EXPECT_EQ(plan.parts, 2 + told);
    ++told;
  }
  mutable int told = 0;
};

TEST(SettingsPlans, LetAFurtherSourceMeasureWhereNothingIsSet) {
  const Fixed knows_none(std::nullopt);
  const Trying trying;
  const SettingsPlans free({}, {&knows_none, &trying});
  for (int call = 0; call < 3; ++call) {
    const Plan plan = *free.next(kColumnForward);
    EXPECT_EQ(plan.parts, 2 + call);
    free.took(kColumnForward, plan, 10);
  }
  EXPECT_EQ(free.find(kColumnForward)->parts, 1);
  EXPECT_EQ(trying.told, 3);

  const Plan serial = {.schedule = Schedule::serial};
  const SettingsPlans set({.plan = serial}, {&trying});
  EXPECT_EQ(set.next(kColumnForward), serial);
  set.took(kColumnForward, serial, 10);
  EXPECT_EQ(trying.told, 3);
}

TEST(SettingsPlans, AreSuchAsTheOperatorCanFollow) {
  for (int i = 0; i < kOperators; ++i) {
    PlanKey key = kColumnForward;
    key.op = static_cast<Operator>(i);
    const bool has_fused = has_schedule(key.op, Schedule::fused);
    EXPECT_EQ(SettingsPlans(parse_settings("plan = -1")).find(key),
              parse_plan(has_fused ? "fused" : "serial"));
    const Plan pipelined = *SettingsPlans(parse_settings("coc_parallel_num = 4")).find(key);
    EXPECT_EQ(pipelined, parse_plan(key.op == Operator::matmul ? "serial" : "pipelined parts=4"));
    const Plan columns = followed_by(key.op, parse_plan("pipelined parts=4 axis=columns"));
    EXPECT_EQ(columns.axis == Axis::columns, is_compute_first(key.op)) << name(key.op);
  }
}

}  // namespace
}  // namespace plait
