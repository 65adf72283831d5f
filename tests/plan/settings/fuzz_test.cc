// Random files are either read or refused in one sentence.
#include <gtest/gtest.h>

#include "plait/error.h"
#include "plait/settings.h"
#include "quant/chance.h"

namespace plait {
namespace {

const std::vector<std::string> kPieces = {"plan",
                                          "customized",
                                          "coc_cfgs",
                                          "threads",
                                          "wire",
                                          "coc_parallel_num",
                                          R"("[1, 2, 3]")",
                                          "'fused'",
                                          R"("pipelined parts=4")",
                                          "'bf16'",
                                          " = ",
                                          "=",
                                          "\n",
                                          "\n",
                                          " ",
                                          "[",
                                          "]",
                                          "{",
                                          "}",
                                          ",",
                                          ".",
                                          "\"",
                                          "'",
                                          R"(""")",
                                          "\\",
                                          "#",
                                          "true",
                                          "1",
                                          "-1",
                                          "0x",
                                          "2.5",
                                          "\r\n",
                                          "\xff",
                                          std::string(1, '\0')};

const std::string kGood =
    "plan = 'fused'\nwire = \"bf16\"\n[customized]\n\"[1, 2, 3]\" = 8\n[coc_cfgs]\nk_min = 1024\n";

TEST(FuzzSettings, AreReadOrRefusedInOneSentence) {
  Chance chance(1);
  int accepted = 0;
  for (int round = 0; round < rounds(100000); ++round) {
    std::string text = chance.one_in(2) ? kGood : "";
    for (std::int64_t i = text.empty() ? chance.below(20) : 0; i > 0; --i)
      text += chance.of(kPieces);
    for (std::int64_t i = chance.below(4); i > 0; --i) mutate(text, chance);
    try {
      parse_settings(text, "f");
      ++accepted;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Code::invalid_argument) << text;
      const std::string_view sentence = error.what();
      ASSERT_TRUE(sentence.starts_with("f:")) << sentence;
      ASSERT_EQ(sentence.find_first_of(std::string_view("\n\r\0", 3)), std::string_view::npos)
          << text;
    }
  }
  EXPECT_GT(accepted, rounds(1000));
}

}  // namespace
}  // namespace plait
