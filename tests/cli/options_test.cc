#include "cli/options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/values.h"
#include "tensor/sentence_of.h"

namespace plait::cli {
namespace {

constexpr Options::About kAbout = {
    .verb = "count", .usage = "[OPTIONS]", .purpose = "Counts.", .examples = ""};

TEST(Options, AreReadByTheirReadersAfterAllHaveBeenParsed) {
  int ranks = 2;
  std::optional<Dtype> dtype;
  std::string file;
  Options options(kAbout);
  options.add("-n,--ranks", whole(1, 8), ranks, "ranks");
  options.add("--dtype", "DTYPE", dtype, read_dtype, "dtype");
  options.add("--file", "FILE", file, "file");
  EXPECT_TRUE(options.parse_all(std::vector<std::string>{"-n3", "--file", "x.json"}));
  EXPECT_EQ(ranks, 3);
  EXPECT_FALSE(dtype);
  EXPECT_EQ(file, "x.json");
  EXPECT_EQ(options.as_given("--ranks"), "--ranks 3");
  EXPECT_TRUE(options.is_given("--file"));
  EXPECT_FALSE(options.is_given("--dtype"));
}

TEST(Options, NameTheOptionWhoseTextIsRefused) {
  int ranks = 2;
  Options options(kAbout);
  options.add("-n,--ranks", whole(1, 8), ranks, "ranks");
  EXPECT_EQ(sentence_of([&] { options.parse_all(std::vector<std::string>{"-n", "9"}); }),
            "--ranks 9 is not a whole number from 1 to 8");
}

TEST(Options, AcceptNamesThatTheHelpDoesNotShow) {
  int tokens = 0;
  bool whole_rows = false;
  Options options(kAbout);
  options.add("--seq|-q,--sequence", whole(1, 8), tokens, "tokens");
  options.add_flag("--no-sequence-parallel|--whole-rows", whole_rows, "rows");
  EXPECT_TRUE(options.parse_all(std::vector<std::string>{"--sequence", "5", "--whole-rows"}));
  EXPECT_EQ(tokens, 5);
  EXPECT_TRUE(whole_rows);
  EXPECT_EQ(options.typed("--seq"), "5");
}

TEST(Options, ShowOnlyTheNamesThatAreNotHidden) {
  int tokens = 0;
  Options options(kAbout);
  options.add("-n,--seq|-q,--sequence", whole(1, 8), tokens, "tokens of a sequence");
  testing::internal::CaptureStdout();
  EXPECT_FALSE(options.parse_all(std::vector<std::string>{"--help"}));
  const std::string page = testing::internal::GetCapturedStdout();
  EXPECT_NE(page.find("  -n, --seq N "), std::string::npos) << page;
  EXPECT_EQ(page.find("--sequence"), std::string::npos) << page;
}

}  // namespace
}  // namespace plait::cli
