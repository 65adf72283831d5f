#include "plan/settings/table.h"

#include <gtest/gtest.h>

#include "plan/settings/coc.h"

namespace plait::plan {
namespace {

// No member has its default value.
Settings all_changed() {
  return {.plan = parse_plan("pipelined parts=3 axis=rows"),
          .customized = {{{16384, 5120, 1920}, parse_plan("fused chunk=64")},
                         {{1, 2, 3}, parse_plan("serial")}},
          .column_backward = true,
          .recompute_all_gather = false,
          .aligned_packing = false,
          .wire = Dtype::f16,
          .threads = 7,
          .backend = "reference",
          .plan_cache = "/var/cache/plans of = mine",
          .tune_online = true};
}

TEST(AllSettings, AreShownAsAVariableHoldsThem) {
  for (const Settings& wanted : {all_changed(), Settings{}}) {
    Settings read = wanted == Settings{} ? all_changed() : Settings{};
    for (const Setting& setting : all_settings()) {
      const std::string variable(setting.variable);
      setting.read(RawSetting::in_variable(variable, setting.show(wanted)), read);
      EXPECT_EQ(setting.show(read), setting.show(wanted)) << setting.name;
    }
    EXPECT_EQ(read, wanted);
  }
}

TEST(AllSettings, HaveNamesOfTheirOwn) {
  for (const Setting& setting : all_settings()) {
    EXPECT_EQ(find_setting(setting.name), &setting);
    if (!setting.coc_name.empty()) {
      EXPECT_EQ(find_setting(setting.coc_name), &setting);
    }
    std::string variable = "PLAIT_";
    for (const char letter : setting.name) variable += static_cast<char>(std::toupper(letter));
    EXPECT_EQ(setting.variable, variable);
  }
  for (const std::string& name : coc_names()) EXPECT_EQ(find_setting(name), nullptr) << name;
  EXPECT_EQ(find_setting(""), nullptr);
}

}  // namespace
}  // namespace plait::plan
