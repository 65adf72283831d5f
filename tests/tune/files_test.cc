#include "tune/files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "folder.h"
#include "plan/cache.h"
#include "plan/cache_example.h"
#include "plan/profile.h"

namespace plait::tune {
namespace {

constexpr const char* kMachine = "this machine";

std::string profile_text(const std::string& machine) {
  plan::MachineProfile profile = plan::built_in_profile();
  profile.machine = machine;
  return plan::text_of(profile);
}

TEST(PlanFiles, AreTextsWhereTheyExist) {
  const test::Folder folder;
  const std::string path = folder / "plans";
  const Files none = read_files({.cache = path, .online = true}, kMachine);
  EXPECT_EQ(none.path, path);
  EXPECT_TRUE(none.online);
  EXPECT_FALSE(none.cache || none.profile);
  EXPECT_EQ(none.refusal + none.left_alone, "");

  plan::PlanCache cache(kMachine);
  cache.add(plan::some_problem(8), plan::fused());
  plan::save_cache(path, cache);
  std::ofstream(plan::profile_path(path)) << profile_text(kMachine);
  const Files both = read_files({.cache = path, .online = false}, kMachine);
  EXPECT_EQ(both.cache.value_or(""), cache.text());
  EXPECT_EQ(both.profile.value_or(""), profile_text(kMachine));
  EXPECT_EQ(both.refusal + both.left_alone, "");
}

TEST(PlanFiles, OfAnotherMachineAreRefusedWhereTheyAreNamed) {
  const test::Folder folder;
  const std::string path = folder / "plans";
  std::ofstream(path) << "plait plans 2\nmachine another\n";
  const Files files = read_files({.cache = path, .online = false}, kMachine);
  EXPECT_NE(files.refusal.find("another"), std::string::npos) << files.refusal;
  EXPECT_EQ(files.path, "");
  EXPECT_EQ(files.left_alone, "");
}

TEST(PlanFiles, AreNoneWithoutAPath) {
  const Files files = read_files({.cache = "", .online = true}, kMachine);
  EXPECT_EQ(files.path, "");
  EXPECT_TRUE(files.online);
}

}  // namespace
}  // namespace plait::tune
