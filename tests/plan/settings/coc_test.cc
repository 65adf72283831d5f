// The names that MindSpeed CoC uses, and their meaning here.
#include "plan/settings/coc.h"

#include <gtest/gtest.h>

#include "plan/settings/load.h"
#include "plan/settings/load_from.h"
#include "tensor/sentence_of.h"

namespace plait::plan {
namespace {

std::string refusal_of(const std::string& toml) {
  return sentence_of([&] { load_from(toml); });
}

// "fused at f:1"
std::string plan_of(const std::string& toml, const Variables& variables = {}) {
  const Loaded loaded = load_from(toml, variables);
  return (loaded.settings.plan ? name(*loaded.settings.plan) : "auto") + " at " +
         loaded.origin("plan");
}

TEST(CocVariables, ChooseThePlan) {
  EXPECT_EQ(plan_of("", {{"COC_PARALLEL_NUM", "8"}}), "pipelined parts=8 at COC_PARALLEL_NUM");
  EXPECT_EQ(plan_of("", {{"COC_PARALLEL_NUM", "3"}}), "pipelined parts=3 at COC_PARALLEL_NUM");
  EXPECT_EQ(plan_of("", {{"COC_PARALLEL_NUM", "1"}, {"USE_COC_FUSED_KERNEL", "0"}}),
            "serial at COC_PARALLEL_NUM");
  EXPECT_EQ(plan_of("", {{"COC_PARALLEL_NUM", "8"}, {"USE_COC_FUSED_KERNEL", "1"}}),
            "fused at USE_COC_FUSED_KERNEL");
  EXPECT_EQ(plan_of("", {{"USE_COC_FUSED_KERNEL", "0"}}), "auto at default");
  EXPECT_EQ(plan_of("", {{"COC_PARALLEL_NUM", "8"}, {"PLAIT_PLAN", "serial"}}),
            "serial at PLAIT_PLAN");
  EXPECT_EQ(plan_of("plan = 'serial'", {{"COC_PARALLEL_NUM", "8"}}),
            "pipelined parts=8 at COC_PARALLEL_NUM");
  EXPECT_EQ(sentence_of([] { plan_of("", {{"COC_PARALLEL_NUM", "0"}}); }),
            "COC_PARALLEL_NUM=0 is not a whole number from 1 to 64");
  EXPECT_EQ(sentence_of([] { plan_of("", {{"USE_COC_FUSED_KERNEL", "2"}}); }),
            "USE_COC_FUSED_KERNEL=2 is neither true nor false");
}

TEST(CocSwitches, ChooseThePlan) {
  EXPECT_EQ(plan_of("use_ascend_coc = true"), "auto at f:1");
  EXPECT_EQ(plan_of("use_ascend_coc = true\ncoc_parallel_num = 4"), "pipelined parts=4 at f:2");
  EXPECT_EQ(plan_of("coc-fused-kernel = true\ncoc-parallel-num = 4"), "fused at f:1");
  EXPECT_EQ(plan_of("use_ascend_coc = false\ncoc_fused_kernel = true"), "serial at f:1");
  EXPECT_EQ(plan_of("coc_parallel_num = 4\ncoc_mode = 1"), "serial at f:2");
  EXPECT_EQ(plan_of("coc_parallel_num = 4\ncoc_mode = 2"), "pipelined parts=4 at f:1");
  EXPECT_EQ(plan_of("coc_mode = 0\ncoc_fused_kernel = true"), "fused at f:2");
  EXPECT_EQ(plan_of("coc_mode = -1"), "auto at default");
  EXPECT_EQ(plan_of("coc_fused_kernel = false"), "auto at default");
  EXPECT_EQ(refusal_of("coc_parallel_num = 4\nplan = 'fused'"),
            "f:1: coc_parallel_num = 4: a plan is set at f:2 too");
  EXPECT_EQ(refusal_of("coc_parallel_num = 65"),
            "f:1: coc_parallel_num = 65 is not a whole number from 1 to 64");
  EXPECT_EQ(refusal_of("coc_mode = 3"), "f:1: coc_mode = 3 is not a whole number from -1 to 2");
}

TEST(CocConfiguration, IsUnderstood) {
  const Settings settings = load_from(
                                "coc_fused_kernel = true\n"
                                "[coc_cfgs]\n"
                                "matmul_soc_friendly = false\n"
                                "enable_coc_in_column_backward = true\n"
                                "recompute_all_gather = false\n"
                                "customized_coc = {\"[16384, 5120, 1920]\" = 8, "
                                "\"[16384, 1920, 5120]\" = 1}\n")
                                .settings;
  EXPECT_EQ(settings,
            (Settings{.plan = parse_plan("fused"),
                      .customized = {{{16384, 5120, 1920}, parse_plan("pipelined parts=8")},
                                     {{16384, 1920, 5120}, parse_plan("serial")}},
                      .column_backward = true,
                      .recompute_all_gather = false,
                      .aligned_packing = false}));
}

TEST(CocConfiguration, MayHoldItsTableApart) {
  const Settings settings = load_from("[coc_cfgs.customized_coc]\n\"[1,2,3]\" = -1").settings;
  EXPECT_EQ(settings.customized, (std::map<ProductShape, Plan>{{{1, 2, 3}, parse_plan("fused")}}));
}

// In CoC, layers that look up shapes do not exist then.
TEST(CocConfiguration, IsSerialForAllShapesWhereItIsOff) {
  const std::string rows = "\n[coc_cfgs]\ncustomized_coc = {\"[1, 2, 3]\" = -1}\n";
  const PlanKey key = {.op = Operator::matmul_all_reduce, .m = 1, .n = 3, .k = 2, .world = 1};
  for (const std::string off : {"use_ascend_coc = false", "coc-mode = 0", "coc_mode = 1"}) {
    const Loaded loaded = load_from(off + rows);
    EXPECT_EQ(SettingsPlans(loaded.settings).find(key), parse_plan("serial")) << off;
    EXPECT_EQ(loaded.origin("customized"), "f:1");
    EXPECT_EQ(
        loaded.remarks,
        (std::vector<std::string>{"f:3: customized has no effect: " + off.substr(0, off.find(' ')) +
                                  " at f:1 makes all shapes serial"}));
  }
  const std::string fused = "coc_mode = 0\ncoc_fused_kernel = true";
  EXPECT_EQ(SettingsPlans(load_from(fused + rows).settings).find(key), parse_plan("fused"));
  EXPECT_TRUE(load_from(fused + rows).remarks.empty());
  // Settings in another place count as usual.
  const Loaded loaded =
      load_from("use_ascend_coc = false\n" + rows, {{"PLAIT_CUSTOMIZED", "[1,2,3]=fused"}});
  EXPECT_EQ(SettingsPlans(loaded.settings).find(key), parse_plan("fused"));
}

// In CoC, one part and mode -1, which are also the defaults, switch it off, and a table of shapes
// has no effect. Here one part is the plan of all other shapes, because a user who lists shapes
// wants them.
TEST(CocConfiguration, KeepsItsShapesWhereAllOthersAreOnePart) {
  const std::string rows = "\n[coc_cfgs]\ncustomized_coc = {\"[1, 2, 3]\" = -1}\n";
  const PlanKey listed = {.op = Operator::matmul_all_reduce, .m = 1, .n = 3, .k = 2, .world = 1};
  PlanKey other = listed;
  other.m = 2;
  for (const std::string one_part : {"coc_parallel_num = 1", "coc_parallel_num = 1\ncoc_mode = -1",
                                     "coc_mode = 2\ncoc_parallel_num = 1"}) {
    const Loaded loaded = load_from(one_part + rows);
    const SettingsPlans plans(loaded.settings);
    EXPECT_EQ(plans.find(listed), parse_plan("fused")) << one_part;
    EXPECT_EQ(plans.find(other), parse_plan("serial")) << one_part;
    EXPECT_TRUE(loaded.remarks.empty());
  }
}

TEST(CocConfiguration, SaysWhatMeansNothingHere) {
  const Loaded loaded = load_from("[coc_cfgs]\nk_min = 1024\nprint_tensor_value_open = false");
  EXPECT_EQ(loaded.settings, Settings{});
  EXPECT_EQ(loaded.remarks,
            (std::vector<std::string>{
                "f:2: k_min has no effect: plait pads packed weights for every k",
                "f:3: print_tensor_value_open has no effect: use plait verify to compare "
                "bits, and plait trace to see calls"}));
}

TEST(CocConfiguration, RefusesRivalsThatAreOn) {
  EXPECT_EQ(refusal_of("use_ascend_mc2 = true"),
            "f:1: use_ascend_mc2 = true cannot be combined with plait: MC2 fuses the same "
            "products and collectives as plait");
  EXPECT_EQ(refusal_of("optimize-recomp-communication-level = 2"),
            "f:1: optimize-recomp-communication-level = 2 cannot be combined with plait: it "
            "leaves out collectives that plait hides behind their products");
  EXPECT_EQ(refusal_of("tp_2d = true"),
            "f:1: tp_2d = true cannot be combined with plait: it shards layers along two "
            "dimensions, and plait shards them along one");
  EXPECT_EQ(refusal_of("unaligned_linear = true"),
            "f:1: unaligned_linear = true cannot be combined with plait: it replaces the layers "
            "that plait replaces, and plait's need no alignment");
  EXPECT_EQ(load_from("use_ascend_mc2 = false\noptimize_recomp_communication_level = 0\n"
                      "tp_2d = false\nunaligned_linear = false")
                .settings,
            Settings{});
}

}  // namespace
}  // namespace plait::plan
