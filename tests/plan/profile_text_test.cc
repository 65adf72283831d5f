// The text of a profile: what is written can be read, and everything else is refused.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "plan/profile.h"
#include "tensor/sentence_of.h"

namespace plait::plan {
namespace {

MachineProfile example() {
  MachineProfile profile = built_in_profile();
  profile.machine = "plait 1, some processor, 2 processors avx2";
  profile.threads = 3;
  profile.copy = 5.25;
  profile.kept = {{.bytes = 1 << 20, .times = 1}, {.bytes = 1 << 24, .times = 2.5}};
  return profile;
}

std::string refusal_of(const std::string& text) {
  return sentence_of([&] { parse_profile(text); });
}

TEST(Profiles, AreWrittenAsTheyAreRead) {
  const std::string text = text_of(example());
  const MachineProfile read = parse_profile(text);
  EXPECT_EQ(text_of(read), text);
  EXPECT_EQ(read.machine, example().machine);
  EXPECT_EQ(read.threads, 3);
  EXPECT_DOUBLE_EQ(read.copy, 5.25);
  EXPECT_EQ(read.products.size(), example().products.size());
  EXPECT_EQ(read.kept, example().kept);
  EXPECT_TRUE(read.is_measured());
  EXPECT_FALSE(built_in_profile().is_measured());
}

TEST(Profiles, SayWhichLineCannotBeRead) {
  const std::string whole = text_of(example());
  const std::string good = whole.substr(0, whole.size() - 4);  // without its end
  EXPECT_EQ(refusal_of(good), "profile: it is incomplete: the last line must be \"end\"");
  EXPECT_EQ(refusal_of(""), "profile: the first line must be \"plait profile 2\", not \"\"");
  EXPECT_EQ(refusal_of("plait profile 1\n"),
            "profile: the first line must be \"plait profile 2\", not \"plait profile 1\"");
  EXPECT_EQ(refusal_of(good + "copy fast\nend\n"),
            "profile, line 40: \"copy fast\" cannot be read");
  EXPECT_EQ(refusal_of("plait profile 2\nmachine x\nend\n"),
            "profile: a line \"product ...\" is missing");
  EXPECT_EQ(refusal_of("plait profile 2\nproduct bf16 1 5\nend\n"),
            "profile: the line \"machine ...\" is missing");
  for (const char* line :
       {"product bf16 0 5", "product bf16 1 0", "product bf16 1", "copy -1", "copy nan",
        "transport shm 1", "ranks 0", "speed 9", "sum 1 2", "product bf16 1 1e300",
        "transport shm 1e300 1", "transport shm 1 1e-300", "kept 1024", "kept 0 1",
        "kept 1024 1e-4", "kept 1024 1000"})
    EXPECT_NE(refusal_of(good + line + "\nend\n"), "nothing was refused") << line;
}

// No machine has such figures, and predictions from them might overflow.
TEST(Profiles, OfImpossibleFiguresAreRefused) {
  const std::vector<std::pair<std::string, std::string>> figures = {
      {"copy", "1e-300"}, {"sum", "1e300"},    {"chunk", "1e300"},
      {"start", "1e300"}, {"beside", "1e300"}, {"uncertainty", "5"}};
  for (const auto& [figure, value] : figures) {
    std::string text = text_of(example());
    const std::size_t begin = text.find('\n' + figure + ' ') + 1;
    std::string line = figure + ' ';
    line += value;
    text.replace(begin, text.find('\n', begin) - begin, line);
    EXPECT_NE(refusal_of(text).find("cannot be read"), std::string::npos) << text;
  }
}

// Random files are either read or refused.
TEST(Profiles, AreReadOrRefusedWhateverIsInThem) {
  std::mt19937 random(5);
  const std::string good = text_of(example());
  for (int round = 0; round < 2000; ++round) {
    std::string text = good;
    for (int change = 0; change < 3; ++change)
      text[random() % text.size()] = static_cast<char>(random() % 128);
    if (!refusal_of(text).empty()) continue;
    const std::string read = text_of(parse_profile(text));
    EXPECT_EQ(text_of(parse_profile(read)), read) << text;
  }
}

TEST(Profiles, OfWhichAPartIsMissingAreRefused) {
  const std::string good = text_of(example());
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_NE(refusal_of(good.substr(0, length)), "nothing was refused") << length;
  const std::size_t line = good.find("\ncopy ") + 1;
  const std::string copy = good.substr(line, good.find('\n', line) + 1 - line);
  std::string twice = good;
  EXPECT_EQ(refusal_of(twice.insert(line, copy)), "profile: 2 lines give copy; one must");
  std::string without = good;
  EXPECT_EQ(refusal_of(without.erase(line, copy.size())), "profile: 0 lines give copy; one must");
}

}  // namespace
}  // namespace plait::plan
