#include "base/instruction_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/processor.h"
#include "tensor/sentence_of.h"

namespace plait::base {
namespace {

#if defined(__aarch64__)
const std::string kNames = "neon, neon-bf16, neon-bfmmla";
constexpr InstructionSet kOfAnotherKind = InstructionSet::avx2;
constexpr InstructionSet kUnnamed = InstructionSet::neon_bf16;
#else
const std::string kNames = "sse2, avx2, avx512, avx512-bf16, amx";
constexpr InstructionSet kOfAnotherKind = InstructionSet::neon_bf16;
constexpr InstructionSet kUnnamed = InstructionSet::amx;
#endif

TEST(InstructionSet, IsReadAsItIsWritten) {
  for (const InstructionSet set : instruction_sets())
    EXPECT_EQ(parse_instruction_set(name(set)), set);
}

TEST(InstructionSet, AnUnknownOneIsRefusedWithThoseThereAre) {
  for (const char* text : {"avx", "AVX2", "avx512_bf16", "", name(kOfAnotherKind).data()}) {
    EXPECT_EQ(sentence_of([&] { parse_instruction_set(text); }),
              "PLAIT_ISA=" + std::string(text) + " is none of " + kNames);
  }
}

TEST(InstructionSet, MayBeUsedUpToTheProcessorsAndTheLimit) {
  for (const InstructionSet set : instruction_sets()) {
    const bool may = set <= usable_instruction_set();
    EXPECT_EQ(may_use(set), may) << name(set);
    if (may) continue;
    const std::string reason = refusal(set);
    EXPECT_TRUE(reason.starts_with(set > processor_instruction_set() ? "this processor has no "
                                                                     : "PLAIT_ISA leaves out "))
        << reason;
  }
}

TEST(InstructionSet, OfAnotherKindOfProcessorMayNotBeUsed) {
  EXPECT_TRUE(std::string(refusal(kOfAnotherKind)).starts_with("this processor has no "));
}

// Each case runs in its own process, because the variable is read once.
class InstructionSetDeathTest : public testing::TestWithParam<InstructionSet> {};

TEST_P(InstructionSetDeathTest, TheVariableIsALimitAndIsNamedWhereItChangesSomething) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto check = [] {
    ::setenv("PLAIT_ISA", std::string(name(GetParam())).c_str(), 1);
    const InstructionSet used = std::min(GetParam(), processor_instruction_set());
    const bool differs = used != std::min(kUnnamed, processor_instruction_set());
    for (const InstructionSet set : instruction_sets()) {
      if (may_use(set) != (set <= GetParam() && set <= processor_instruction_set())) std::exit(1);
    }
    const std::string note = ", PLAIT_ISA=" + std::string(name(GetParam()));
    if (read_processor().model.ends_with(note) != differs) std::exit(2);
    std::exit(0);
  };
  EXPECT_EXIT(check(), testing::ExitedWithCode(0), "");
}

TEST(UnnamedInstructionSetDeathTest, OneWithBitsOfItsOwnIsUsedOnlyIfNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto check = [] {
    ::unsetenv("PLAIT_ISA");
    if (usable_instruction_set() != std::min(processor_instruction_set(), kUnnamed)) std::exit(1);
    std::exit(may_use(InstructionSet::neon_bfmmla) ? 2 : 0);
  };
  EXPECT_EXIT(check(), testing::ExitedWithCode(0), "");
}

INSTANTIATE_TEST_SUITE_P(All, InstructionSetDeathTest, testing::ValuesIn(instruction_sets()),
                         [](const auto& one) {
                           std::string text(name(one.param));
                           const auto hyphen = text.find('-');
                           if (hyphen != std::string::npos) text[hyphen] = '_';
                           return text;
                         });

}  // namespace
}  // namespace plait::base
