// Files and variables, and which of them takes precedence.
#include "plan/settings/load.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "plan/settings/load_from.h"
#include "tensor/sentence_of.h"

namespace plait::plan {
namespace {

Settings file(const std::string& toml) { return parse_settings(toml, "f"); }

std::string refusal_of(const std::string& toml, const Variables& variables = {}) {
  return sentence_of([&] { load_from(toml, variables); });
}

TEST(Settings, AreTheDefaultsWhereNobodySaysAnything) {
  EXPECT_EQ(file(""), Settings{});
  const Loaded loaded = load_from("");
  EXPECT_EQ(loaded.settings, Settings{});
  EXPECT_EQ(loaded.origin("plan"), "default");
  EXPECT_EQ(loaded.file, "f");
}

TEST(Settings, ComeFromAFile) {
  const Settings settings = file(
      "plan = 'pipelined parts=8'\n"
      "column_backward = true\n"
      "recompute_all_gather = false\n"
      "aligned_packing = false\n"
      "wire = 'bf16'\n"
      "threads = 4\n"
      "backend = 'vector'\n"
      "plan_cache = '/tmp/plans'\n"
      "tune_online = true\n"
      "[customized]\n"
      "\"[16384, 5120, 1920]\" = 8\n"
      "\"[16384,1920,5120]\" = 1\n"
      "'[1, 2, 3]' = -1\n"
      "'[1, 2, 4]' = 'fused chunk=64'\n");
  EXPECT_EQ(settings,
            (Settings{.plan = parse_plan("pipelined parts=8"),
                      .customized = {{{16384, 5120, 1920}, parse_plan("pipelined parts=8")},
                                     {{16384, 1920, 5120}, parse_plan("serial")},
                                     {{1, 2, 3}, parse_plan("fused")},
                                     {{1, 2, 4}, parse_plan("fused chunk=64")}},
                      .column_backward = true,
                      .recompute_all_gather = false,
                      .aligned_packing = false,
                      .wire = Dtype::bf16,
                      .threads = 4,
                      .backend = "vector",
                      .plan_cache = "/tmp/plans",
                      .tune_online = true}));
}

TEST(Settings, OfTheEnvironmentGoFirst) {
  const Loaded loaded =
      load_from("plan = 'fused'\n\nwire = 'bf16'\nthreads = 4\ncustomized = {\"[1,2,3]\" = 2}",
                {{"PLAIT_PLAN", "serial"},
                 {"PLAIT_THREADS", "2"},
                 {"PLAIT_CUSTOMIZED", " [4, 5, 6]=8; [7,8,9] = pipelined parts=3 first=10 ;"}});
  EXPECT_EQ(loaded.settings.plan, parse_plan("serial"));
  EXPECT_EQ(loaded.settings.threads, 2);
  EXPECT_EQ(loaded.settings.wire, Dtype::bf16);
  EXPECT_EQ(loaded.settings.customized,
            (std::map<ProductShape, Plan>{{{4, 5, 6}, parse_plan("pipelined parts=8")},
                                          {{7, 8, 9}, parse_plan("pipelined parts=3 first=10")}}));
  EXPECT_EQ(loaded.origin("plan"), "PLAIT_PLAN");
  EXPECT_EQ(loaded.origin("customized"), "PLAIT_CUSTOMIZED");
  EXPECT_EQ(loaded.origin("wire"), "f:3");
  EXPECT_EQ(loaded.origin("backend"), "default");
}

TEST(Settings, CanBeSetBackByTheEnvironment) {
  const Settings settings =
      load_from("plan = 'fused'\ncustomized = {\"[1,2,3]\" = 2}\nbackend = 'vector'\nthreads = 3",
                {{"PLAIT_PLAN", "auto"},
                 {"PLAIT_CUSTOMIZED", "none"},
                 {"PLAIT_BACKEND", "auto"},
                 {"PLAIT_THREADS", "auto"}})
          .settings;
  EXPECT_EQ(settings, Settings{});
}

TEST(Settings, AreReadAsVariablesHoldThem) {
  for (const char* on : {"1", "true", "True", "ON", "yes"})
    EXPECT_TRUE(load_from("", {{"PLAIT_COLUMN_BACKWARD", on}}).settings.column_backward) << on;
  for (const char* off : {"0", "false", "FALSE", "off", "No"})
    EXPECT_FALSE(load_from("", {{"PLAIT_ALIGNED_PACKING", off}}).settings.aligned_packing) << off;
  EXPECT_EQ(refusal_of("", {{"PLAIT_COLUMN_BACKWARD", "maybe"}}),
            "PLAIT_COLUMN_BACKWARD=maybe is neither true nor false");
  EXPECT_EQ(load_from("", {{"PLAIT_PLAN", "-1"}}).settings.plan, parse_plan("fused"));
}

TEST(Settings, KnowWhereCachesAre) {
  EXPECT_EQ(load_from("", {{"HOME", "/h"}}).settings.plan_cache, "/h/.cache/plait/plans");
  EXPECT_EQ(load_from("", {{"HOME", "/h"}, {"XDG_CACHE_HOME", "/c"}}).settings.plan_cache,
            "/c/plait/plans");
  EXPECT_EQ(load_from("", {{"HOME", "/h"}, {"XDG_CACHE_HOME", "relative"}}).settings.plan_cache,
            "/h/.cache/plait/plans");
  EXPECT_EQ(load_from("plan_cache = '~/plans'", {{"HOME", "/h"}}).settings.plan_cache, "/h/plans");
  EXPECT_EQ(load_from("plan_cache = 'none'", {{"HOME", "/h"}}).settings.plan_cache, "");
  EXPECT_EQ(refusal_of("plan_cache = '~/plans'"), "plan_cache = ~/plans: HOME is not set");
}

TEST(Settings, SayWhichNameTheyDoNotKnow) {
  EXPECT_EQ(refusal_of("\nthread = 4"), "f:2: there is no setting thread; did you mean threads?");
  EXPECT_EQ(refusal_of("coc_paralel_num = 4"),
            "f:1: there is no setting coc_paralel_num; did you mean coc_parallel_num?");
  EXPECT_EQ(refusal_of("[coc_cfgs]\ncustomised_coc = {}"),
            "f:2: there is no setting customised_coc; did you mean customized_coc?");
  EXPECT_EQ(refusal_of("[coc_cfg]"), "f:1: there is no setting coc_cfg; did you mean coc_cfgs?");
  EXPECT_EQ(refusal_of("xylophone = 4"), "f:1: there is no setting xylophone");
}

TEST(Settings, SayWhichValueTheyCannotRead) {
  EXPECT_EQ(refusal_of("threads = 'many'"),
            "f:1: threads = \"many\" is not a whole number from 0 to 1024");
  EXPECT_EQ(refusal_of("threads = -1"), "f:1: threads = -1 is not a whole number from 0 to 1024");
  EXPECT_EQ(refusal_of("wire = 's4'"), "f:1: wire = \"s4\" is none of auto, f32, bf16, f16, s8");
  EXPECT_EQ(refusal_of("wire = 16"), "f:1: wire = 16 is not a text in quotes");
  EXPECT_EQ(refusal_of("tune_online = 2"), "f:1: tune_online = 2 is none of auto, true, false");
  EXPECT_EQ(refusal_of("tune_online = 'true'"),
            "f:1: tune_online = \"true\" is none of auto, true, false");
  EXPECT_EQ(refusal_of("plan = 0"),
            "f:1: plan = 0 is not 1 (serial), 2 to 64 (parts) or -1 (fused)");
  EXPECT_EQ(refusal_of("", {{"PLAIT_PLAN", "fussed"}}),
            "PLAIT_PLAN=fussed: fussed is neither a schedule (serial, pipelined, fused) nor "
            "NAME=VALUE");
  EXPECT_EQ(refusal_of("[plan]\nparts = 4"), "f:1: plan = a table is not a text in quotes");
  EXPECT_EQ(refusal_of("coc_cfgs = 4"), "f:1: coc_cfgs = 4 is not a table");
  EXPECT_EQ(refusal_of("backend = \"" + std::string(200, 'x') + "\t\" x"),
            "f:1: a line may hold only one setting, or one table's name");
  EXPECT_EQ(refusal_of("wire = \"" + std::string(200, 'x') + '"'),
            "f:1: wire = \"" + std::string(80, 'x') + "...\" is none of auto, f32, bf16, f16, s8");
}

TEST(Settings, SayWhichShapeTheyCannotRead) {
  const std::string known = ": a shape must be written [m, k, n]";
  EXPECT_EQ(refusal_of("[customized]\n\"[1, 2]\" = 1"), "f:2: [1, 2] = 1" + known);
  EXPECT_EQ(refusal_of("[customized]\n\"1,2,3\" = 1"), "f:2: 1,2,3 = 1" + known);
  EXPECT_EQ(refusal_of("[customized]\n\"[1,2,3]x\" = 1"), "f:2: [1,2,3]x = 1" + known);
  EXPECT_EQ(refusal_of("[customized]\n\"[1,two,3]\" = 1"),
            "f:2: [1,two,3] = 1" + known + ", with sizes of at least 1");
  EXPECT_EQ(refusal_of("[customized]\n\"[1,0,3]\" = 1"),
            "f:2: [1,0,3] = 1" + known + ", with sizes of at least 1");
  EXPECT_EQ(refusal_of("[customized]\n\"[1,2,3]\" = 1\n\"[1, 2, 3]\" = 2"),
            "f:3: [1, 2, 3] = 2: this shape has a plan already");
  EXPECT_EQ(refusal_of("[customized]\n\"[1,2,3]\" = 'auto'"),
            "f:2: [1,2,3] = \"auto\": auto is neither a schedule (serial, pipelined, fused) nor "
            "NAME=VALUE");
  EXPECT_EQ(refusal_of("customized = 8"), "f:1: customized = 8 is not a table");
  EXPECT_EQ(refusal_of("", {{"PLAIT_CUSTOMIZED", "[1,2,3]"}}),
            "PLAIT_CUSTOMIZED=[1,2,3]: [1,2,3] has no =VALUE");
  EXPECT_EQ(refusal_of("", {{"PLAIT_CUSTOMIZED", "[1,2,3]=65"}}),
            "PLAIT_CUSTOMIZED: [1,2,3]=65 is not 1 (serial), 2 to 64 (parts) or -1 (fused)");
}

TEST(Settings, AreSaidOnce) {
  EXPECT_EQ(refusal_of("threads = 1\nthreads = 2"), "f:2: threads is set twice, first at f:1");
  EXPECT_EQ(refusal_of("aligned_packing = true\n[coc_cfgs]\nmatmul_soc_friendly = false"),
            "f:3: matmul_soc_friendly = false: it is set at f:1 already");
  EXPECT_EQ(refusal_of("coc-parallel-num = 2\ncoc_parallel_num = 2"),
            "f:2: coc_parallel_num = 2: it is set at f:1 already");
}

TEST(TheSettingsFile, IsTheOneThatIsNamed) {
  const std::string path = testing::TempDir() + "/plait_load_test.toml";
  std::FILE* out = std::fopen(path.c_str(), "w");
  std::fputs("\nthreads = 3\n", out);
  std::fclose(out);
  ::setenv("PLAIT_CONFIG", path.c_str(), 1);
  EXPECT_EQ(load_settings().threads, 3);
  EXPECT_EQ(load(process_environment()).origin("threads"), path + ":2");
  std::remove(path.c_str());
  EXPECT_EQ(sentence_of([] { load_settings(); }, Code::system),
            "PLAIT_CONFIG: cannot read " + path + ": No such file or directory");
  ::unsetenv("PLAIT_CONFIG");
  EXPECT_EQ(load(process_environment()).file, "");
}

}  // namespace
}  // namespace plait::plan
