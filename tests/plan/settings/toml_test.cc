#include "plan/settings/toml.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "tensor/sentence_of.h"

namespace plait::plan {
namespace {

// Lists every entry as a line: "3 a.b = text".
void list(const RawSetting::Entries& entries, const std::string& prefix, std::string& lines) {
  for (RawSetting entry : entries) {
    const std::string name = prefix + entry.name();
    if (const RawSetting::Entries* table = entry.table()) {
      list(*table, name + ".", lines);
      continue;
    }
    const std::string value = entry.is_whole() ? std::to_string(entry.whole(INT64_MIN, INT64_MAX))
                              : entry.is(entry.name()) ? "itself"
                                                       : entry.text();
    lines += base::sentence(entry.origin().substr(2), ' ', name, " = ", value, '\n');
  }
}

std::string read(std::string_view text) {
  std::string lines;
  list(read_toml(text, "f"), "", lines);
  return lines;
}

std::string refusal_of(std::string_view text) {
  return sentence_of([&] { read_toml(text, "f"); });
}

TEST(Toml, ReadsNamesAndValues) {
  EXPECT_EQ(read("a = 1\n"
                 "  b-c_2=\"two\"   # a comment\r\n"
                 "\n"
                 "# nothing\n"
                 "\"d e\" = '\\three\\'\n"
                 "3 = \"\"\n"
                 "f.g = \"a#b\""),
            "1 a = 1\n2 b-c_2 = two\n5 d e = \\three\\\n6 3 = \n7 f.g = a#b\n");
}

TEST(Toml, ReadsTables) {
  EXPECT_EQ(read("[a]\nb = 1\n[ c . \"d\" ]\n  e = 2\n[a]\nf = {g = 3, h = {  }, i = 'x'}\n"),
            "2 a.b = 1\n6 a.f.g = 3\n6 a.f.i = x\n4 c.d.e = 2\n");
  EXPECT_EQ(read_toml("[a]\n", "f").size(), 1U);
}

TEST(Toml, ReadsWholeNumbers) {
  EXPECT_EQ(read("a = -12\nb = +4_096\nc = 0x1F\nd = 0b101\ne = 0o17\nf = 9223372036854775807\n"),
            "1 a = -12\n2 b = 4096\n3 c = 31\n4 d = 5\n5 e = 15\n6 f = 9223372036854775807\n");
  for (const char* text : {"1__0", "_1", "1_", "0x_1", "+_1", "_"})
    EXPECT_FALSE(read_toml(base::sentence("a = ", text), "f").front().is_whole()) << text;
}

TEST(Toml, ReadsEscapes) {
  EXPECT_EQ(read(R"(a = "\"\\\t|")"), "1 a = \"\\\t|\n");
  EXPECT_EQ(refusal_of("a = 1\nb = \"C:\\dir\""),
            "f:2: write a backslash twice in \"...\", or once in '...'");
}

TEST(Toml, ReadsFlags) {
  const RawSetting::Entries entries = read_toml("a = true\nb = false", "f");
  EXPECT_TRUE(entries[0].flag());
  EXPECT_FALSE(entries[1].flag());
}

TEST(Toml, KeepsWhatNoSettingCouldBeForARefusal) {
  const RawSetting::Entries entries = read_toml("a = 2.5\nb = bf16\nc = 1979-05-27\nd = +-4", "f");
  EXPECT_EQ(sentence_of([&] { entries[0].whole(0, 9); }),
            "f:1: a = 2.5 is not a whole number from 0 to 9");
  EXPECT_EQ(sentence_of([&] { entries[1].text(); }), "f:2: b = bf16 is not a text in quotes");
  EXPECT_EQ(sentence_of([&] { entries[2].flag(); }),
            "f:3: c = 1979-05-27 is neither true nor false");
  EXPECT_EQ(sentence_of([&] { entries[3].entries(); }), "f:4: d = +-4 is not a table");
}

TEST(Toml, SaysWhatItCannotRead) {
  EXPECT_EQ(refusal_of("a"), "f:1: a name must be followed by =");
  EXPECT_EQ(refusal_of("\n\na = "), "f:3: a value is missing");
  EXPECT_EQ(refusal_of("a = # 1"), "f:1: a value is missing");
  EXPECT_EQ(refusal_of("= 1"), "f:1: a name is missing");
  EXPECT_EQ(refusal_of("a. = 1"), "f:1: a name is missing");
  EXPECT_EQ(refusal_of("a = 1 2"), "f:1: a line may hold only one setting, or one table's name");
  EXPECT_EQ(refusal_of("a = \"x\ny\""), "f:1: a text must end on its line");
  EXPECT_EQ(refusal_of("a = \"\"\"x\"\"\""), "f:1: no setting can be a text of several lines");
  EXPECT_EQ(refusal_of("a = [1, 2]"), "f:1: [...] is a list, which no setting can be");
  EXPECT_EQ(refusal_of("[[a]]"), "f:1: [[...]] is a list of tables, which no setting can be");
  EXPECT_EQ(refusal_of("[a"), "f:1: the name of a table must be followed by ]");
  EXPECT_EQ(refusal_of("[]"), "f:1: a name is missing");
  EXPECT_EQ(refusal_of("a = {b = 1"), "f:1: a value in braces must be followed by ,");
  EXPECT_EQ(refusal_of("a = {b = 1,\nc = 2}"), "f:1: a name is missing");
  EXPECT_EQ(refusal_of("a = 1\n\"a\" = 2"), "f:2: a is set twice, first at f:1");
  EXPECT_EQ(refusal_of("a = 1\n[a]"), "f:2: a is set twice, first at f:1");
  EXPECT_EQ(refusal_of("a.b = 1\na = 2"), "f:2: a is set twice, first at f:1");
  EXPECT_EQ(refusal_of("[a.b.c]"), "f:1: tables may be nested at most two deep");
  EXPECT_EQ(refusal_of("a = {b = {c = {d = 1}}}"), "f:1: tables may be nested at most two deep");
}

TEST(Toml, GoesNoDeeperThanItMay) {
  std::string dots = "a";
  std::string braces = "a = ";
  for (int i = 0; i < 30000; ++i) {
    dots += ".a";
    braces += "{a = ";
  }
  EXPECT_EQ(refusal_of(dots + " = 1"), "f:1: tables may be nested at most two deep");
  EXPECT_EQ(refusal_of(braces), "f:1: tables may be nested at most two deep");
}

}  // namespace
}  // namespace plait::plan
