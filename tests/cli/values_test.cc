#include "cli/values.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "folder.h"
#include "tensor/sentence_of.h"

namespace plait::cli {
namespace {

template <class Read, class... More>
std::string refusal(const Read& read, const std::string& text, More... more) {
  return sentence_of([&] { static_cast<void>(read("--option", text, more...)); });
}

TEST(Values, AreWholeNumbersWithinTheirLimits) {
  EXPECT_EQ(read_number("--n", "1", 1, 8), 1);
  EXPECT_EQ(read_number("--n", "8", 1, 8), 8);
  for (const char* text : {"0", "9", "", "1.5", "x", "8x", "1e3", "99999999999999999999"})
    EXPECT_EQ(sentence_of([&] { read_number("--n", text, 1, 8); }),
              std::string("--n ") + text + " is not a whole number from 1 to 8");
  EXPECT_EQ(whole(-2, 2).read("--n", "-2"), -2);
  EXPECT_EQ(size("M").read("--m", "16777216"), kLargestSize);
  EXPECT_THROW(size("M").read("--m", "16777217"), Error);
  EXPECT_EQ(read_threads("--threads", "1024"), 1024);
  EXPECT_THROW(read_threads("--threads", "0"), Error);
}

TEST(Values, OfAListAreBetweenCommas) {
  EXPECT_EQ(read_list("--m", "1,2,x"), (std::vector<std::string>{"1", "2", "x"}));
  EXPECT_EQ(read_list("--m", "one"), std::vector<std::string>{"one"});
  for (const char* text : {"", ",", "1,", ",1", "1,,2"})
    EXPECT_EQ(refusal(read_list, text),
              std::string("--option ") + text + " has an empty item between commas");
}

TEST(Values, OfSecondsAreAboveZero) {
  EXPECT_EQ(read_seconds("--seconds", "0.5"), base::kSecond / 2);
  EXPECT_EQ(read_seconds("--seconds", "3600"), 3600 * base::kSecond);
  for (const char* text : {"0", "-1", "3600.1", "nan", "", "1s"})
    EXPECT_EQ(refusal(read_seconds, text),
              std::string("--option ") + text + " is not a number above 0 and up to 3600");
}

TEST(Values, NameDtypesThatCanBeMultiplied) {
  EXPECT_EQ(read_dtype("--dtype", "bf16"), Dtype::bf16);
  for (const char* text : {"s8", "BF16", ""})
    EXPECT_EQ(refusal(read_dtype, text),
              std::string("--option ") + text + " is none of f32, bf16, f16");
}

TEST(Values, NameAWireOnlyWherePartialSumsTravel) {
  EXPECT_EQ(wire_of(Operator::matmul_all_reduce).read("--wire", "bf16"), Dtype::bf16);
  EXPECT_EQ(refusal(wire_of(Operator::all_gather_matmul).read, "bf16"),
            "--option bf16 applies to partial sums, and all_gather_matmul has none");
}

TEST(Values, NameLayoutsAndWeights) {
  EXPECT_EQ(read_layout("--layout", "out_in"), WeightLayout::out_in);
  EXPECT_EQ(read_layout("--layout", "in_out"), WeightLayout::in_out);
  EXPECT_EQ(refusal(read_layout, "out-in"), "--option out-in is neither out_in nor in_out");
  for (const char* text : {"plain", "f32", "s8:channel", "s4:group=64"})
    EXPECT_EQ(read_weight_kind("--weight", text), text);
  for (const char* text : {"s9", "s3:channel", "s4:group=0", ""})
    EXPECT_THROW(read_weight_kind("--weight", text), Error) << text;
  EXPECT_FALSE(is_packed_kind("plain"));
}

TEST(Values, SuggestTheNameThatWasProbablyMeant) {
  EXPECT_EQ(refusal(read_backend, "vectr"), "there is no backend vectr; did you mean vector?");
  EXPECT_NE(sentence_of([] { read_model_name("nothing-like-it"); }).find("; there are "),
            std::string::npos);
}

TEST(Values, OfABackendAreEmptyForTheBest) {
  EXPECT_EQ(read_backend("--backend", ""), "");
  EXPECT_EQ(read_backend("--backend", "auto"), "");
  EXPECT_EQ(read_backend("--backend", "reference"), "reference");
  const std::vector<std::string> names = backend_names();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_EQ(names.back(), "reference");
}

TEST(Values, OfOperatorsAreThoseThatCommunicate) {
  const std::vector<std::string> words = operator_words();
  EXPECT_EQ(words.size(), 6U);
  for (const std::string& word : words) EXPECT_TRUE(parse_operator(word)) << word;
}

TEST(Values, NameFilesThatCanBeRead) {
  const test::Folder folder;
  const std::string path = folder / "file";
  std::ofstream(path) << "text";
  std::string word;
  open_input("--shapes", path) >> word;
  EXPECT_EQ(word, "text");
  EXPECT_EQ(refusal(open_input, folder / "none"),
            "--option " + folder / "none" + " cannot be read: No such file or directory");
  EXPECT_EQ(refusal(open_input, folder / "."),
            "--option " + folder / "." + " is a folder, not a file");
  EXPECT_EQ(refusal(open_input, "/dev/zero"), "--option /dev/zero is a device, not a file");
}

}  // namespace
}  // namespace plait::cli
