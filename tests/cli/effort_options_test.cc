#include "cli/effort_options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/options.h"
#include "tensor/sentence_of.h"

namespace plait::cli {
namespace {

constexpr Options::About kAbout = {
    .verb = "count", .usage = "[OPTIONS]", .purpose = "Counts.", .examples = ""};

measure::Effort effort_of(const std::vector<std::string>& words) {
  measure::Effort effort;
  Options options(kAbout);
  add_options(options, effort, "0.5");
  options.parse_all(words);
  return effort;
}

TEST(EffortOptions, HaveTheDefaultOfTheirVerb) {
  const measure::Effort effort = effort_of({});
  EXPECT_EQ(effort.repetitions, 0);
  EXPECT_EQ(effort.each, base::kSecond / 2);
}

TEST(EffortOptions, CountRepetitionsOrTakeATime) {
  EXPECT_EQ(effort_of({"--repeat", "7"}).repetitions, 7);
  EXPECT_EQ(effort_of({"--seconds", "2"}).each, 2 * base::kSecond);
  EXPECT_EQ(sentence_of([] { effort_of({"-r", "0"}); }),
            "--repeat 0 is not a whole number from 1 to 100000");
  EXPECT_EQ(sentence_of([] { effort_of({"-s", "0"}); }),
            "--seconds 0 is not a number above 0 and up to 3600");
}

}  // namespace
}  // namespace plait::cli
