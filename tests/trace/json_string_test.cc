#include "trace/json_string.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace plait::trace {
namespace {

std::string as_json(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

TEST(JsonString, EscapesWhatJsonAsksFor) {
  EXPECT_EQ(as_json("matmul"), R"("matmul")");
  EXPECT_EQ(as_json("a\"b\\c\n\x01\x1f\x7f/"), "\"a\\\"b\\\\c\\u000a\\u0001\\u001f\x7f/\"");
  EXPECT_EQ(as_json(std::string_view("\0", 1)), R"("\u0000")");
}

TEST(JsonString, KeepsUnicode) {
  for (const char* text : {"größe", "行列", "\U0001f9f6", "\u0080\u07ff\u0800\uffff\U0010ffff"}) {
    EXPECT_EQ(as_json(text), '"' + std::string(text) + '"');
  }
}

TEST(JsonString, ReplacesWhatIsNoUnicode) {
  EXPECT_EQ(as_json("a\xff z"), "\"a\ufffd z\"");
  EXPECT_EQ(as_json("\xc3"), "\"\ufffd\"");
  EXPECT_EQ(as_json("\xc3("), "\"\ufffd(\"");
  EXPECT_EQ(as_json("\xc0\xaf"), "\"\ufffd\ufffd\"");                      // overlong
  EXPECT_EQ(as_json("\xed\xa0\x80"), "\"\ufffd\ufffd\ufffd\"");            // a surrogate
  EXPECT_EQ(as_json("\xf4\x90\x80\x80"), "\"\ufffd\ufffd\ufffd\ufffd\"");  // beyond U+10FFFF
  EXPECT_EQ(as_json("\xf0\x9f\xa7"), "\"\ufffd\ufffd\ufffd\"");            // incomplete
}

// nlohmann's parser checks UTF-8 independently.
TEST(JsonString, AnyFourBytesAreAString) {
  using std::literals::string_view_literals::operator""sv;
  constexpr auto kEdges =
      "\0\x1f\"\\a\x7f\x80\x8f\x90\x9f\xa0\xbf\xc1\xc2\xdf\xe0\xed\xef\xf0\xf4\xf5\xff"sv;
  static_assert(kEdges.size() == 22);
  for (std::size_t number = 0; number < std::size_t{22} * 22 * 22 * 22; ++number) {
    const std::string text = {kEdges[number % 22], kEdges[number / 22 % 22],
                              kEdges[number / 22 / 22 % 22], kEdges[number / 22 / 22 / 22]};
    ASSERT_TRUE(nlohmann::json::accept(as_json(text))) << number;
  }
}

}  // namespace
}  // namespace plait::trace
