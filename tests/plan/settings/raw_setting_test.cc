#include "plan/settings/raw_setting.h"

#include <gtest/gtest.h>

#include "tensor/sentence_of.h"

namespace plait::plan {
namespace {

RawSetting variable(const std::string& text) { return RawSetting::in_variable("PLAIT_X", text); }
RawSetting line(RawSetting::Value value) {
  return RawSetting::in_file("x", {.file = "plait.toml", .number = 3}, std::move(value));
}

template <class Read>
std::string refusal(const Read& read) {
  return sentence_of([&] { static_cast<void>(read()); });
}

TEST(RawSettings, AreFlagsInManyWordsInVariables) {
  for (const char* text : {"1", "true", "ON", "Yes"}) EXPECT_TRUE(variable(text).flag()) << text;
  for (const char* text : {"0", "False", "off", "no"}) EXPECT_FALSE(variable(text).flag()) << text;
  for (const char* text : {"2", "", "y", "01"})
    EXPECT_EQ(refusal([&] { return variable(text).flag(); }),
              std::string("PLAIT_X=") + text + " is neither true nor false");
}

TEST(RawSettings, AreFlagsOrNumbersInFiles) {
  EXPECT_TRUE(line(true).flag());
  EXPECT_TRUE(line(std::int64_t{1}).flag());
  EXPECT_FALSE(line(std::int64_t{0}).flag());
  EXPECT_EQ(refusal([] { return line(std::int64_t{2}).flag(); }),
            "plait.toml:3: x = 2 is neither true nor false");
  EXPECT_EQ(refusal([] { return line(std::string("true")).flag(); }),
            "plait.toml:3: x = \"true\" is neither true nor false");
}

TEST(RawSettings, AreNumbersUpToTheirLimits) {
  EXPECT_EQ(variable("-3").whole(-3, 3), -3);
  EXPECT_EQ(line(std::int64_t{3}).whole(-3, 3), 3);
  EXPECT_EQ(refusal([] { return variable("4").whole(-3, 3); }),
            "PLAIT_X=4 is not a whole number from -3 to 3");
  EXPECT_EQ(refusal([] { return line(RawSetting::Unusable{"2.5"}).whole(-3, 3); }),
            "plait.toml:3: x = 2.5 is not a whole number from -3 to 3");
  EXPECT_EQ(refusal([] { return line(true).whole(0, 1); }),
            "plait.toml:3: x = true is not a whole number from 0 to 1");
  EXPECT_TRUE(variable("7").is_whole());
  EXPECT_FALSE(variable("7.0").is_whole());
  EXPECT_FALSE(line(std::string("7")).is_whole());
}

TEST(RawSettings, AreTextsOnlyInQuotes) {
  EXPECT_EQ(line(std::string("fused")).text(), "fused");
  EXPECT_TRUE(line(std::string("fused")).is("fused"));
  EXPECT_FALSE(line(true).is("true"));
  EXPECT_EQ(refusal([] { return line(std::int64_t{5}).text(); }),
            "plait.toml:3: x = 5 is not a text in quotes");
}

TEST(RawSettings, OfAVariableMayHaveEntries) {
  const auto entries = variable(" a=1; b = x=y ;; ").entries();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].name(), "a");
  EXPECT_EQ(entries[0].whole(0, 9), 1);
  EXPECT_EQ(entries[0].origin(), "PLAIT_X");
  EXPECT_EQ(entries[1].name(), "b");
  EXPECT_EQ(entries[1].text(), "x=y");
  EXPECT_EQ(refusal([&] { return entries[1].whole(0, 9); }),
            "PLAIT_X: b = x=y is not a whole number from 0 to 9");
  EXPECT_EQ(refusal([] { return variable("a=1;b").entries(); }), "PLAIT_X=a=1;b: b has no =VALUE");
  EXPECT_EQ(refusal([] { return line(true).entries(); }), "plait.toml:3: x = true is not a table");
}

TEST(RawSettings, AreShownInOneShortLine) {
  EXPECT_EQ(on_one_line("a\nb\tc\x1b[31m"), "a?b?c?[31m");
  const std::string sentence = refusal([] { return variable(std::string(500, 'x')).flag(); });
  EXPECT_EQ(sentence, "PLAIT_X=" + std::string(80, 'x') + "... is neither true nor false");
  EXPECT_EQ(refusal([] { return variable("a\nb").flag(); }),
            "PLAIT_X=a?b is neither true nor false");
}

}  // namespace
}  // namespace plait::plan
