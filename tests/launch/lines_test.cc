#include "launch/lines.h"

#include <gtest/gtest.h>

#include <string>

namespace plait::launch {
namespace {

TEST(Lines, PassesOnlyWholeLinesAndEndsTheLastOne) {
  Lines lines("[3] ");
  std::string out;
  lines.take("ab", out);
  EXPECT_EQ(out, "");
  lines.take("c\n\nd", out);
  EXPECT_EQ(out, "[3] abc\n[3] \n");
  lines.finish(out);
  EXPECT_EQ(out, "[3] abc\n[3] \n[3] d\n");
  lines.finish(out);
  EXPECT_EQ(out, "[3] abc\n[3] \n[3] d\n");
}

TEST(Lines, DoesNotDependOnHowTheBytesCome) {
  using namespace std::string_literals;
  const std::string text = "one\n\0two\r\nthree\n\n\nfour"s;
  std::string whole;
  Lines at_once("> ");
  at_once.take(text, whole);
  at_once.finish(whole);
  for (std::size_t piece = 1; piece < text.size(); ++piece) {
    std::string out;
    Lines lines("> ");
    for (std::size_t at = 0; at < text.size(); at += piece) lines.take(text.substr(at, piece), out);
    lines.finish(out);
    EXPECT_EQ(out, whole) << "in pieces of " << piece;
  }
}

TEST(Lines, CutsALineThatGrowsBeyondMeasure) {
  Lines lines("> ", 4);
  std::string out;
  lines.take("abcdefghij\nkl\n", out);
  EXPECT_EQ(out, "> abcd\n> efgh\n> ij\n> kl\n");
}

TEST(Lines, DoesNotAddAnEmptyLineAfterOneThatJustFits) {
  Lines lines("> ", 4);
  std::string out;
  lines.take("abcd\nef\n", out);
  EXPECT_EQ(out, "> abcd\n> ef\n");
}

}  // namespace
}  // namespace plait::launch
