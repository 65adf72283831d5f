#include "base/processor.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace plait::base {
namespace {

std::map<std::string, bool> features(const Processor& processor) {
  return {processor.features.begin(), processor.features.end()};
}

TEST(Processor, X86) {
  const auto processor = parse_processor(
      "processor\t: 0\nmodel name\t: A CPU @ 2.00GHz\nflags\t\t: fpu avx avx2 fma avx512f\n\n"
      "processor\t: 1\nmodel name\t: A CPU @ 2.00GHz\nflags\t\t: fpu\n",
      "x86_64");
  EXPECT_EQ(processor.model, "A CPU @ 2.00GHz");
  auto found = features(processor);
  EXPECT_TRUE(found.at("avx2"));
  EXPECT_TRUE(found.at("avx512f"));
  // A feature's name may begin like that of another one.
  EXPECT_FALSE(found.at("avx512_bf16"));
  EXPECT_FALSE(found.at("amx_tile"));
}

// Names of virtual machines' processors are not specific enough.
TEST(Processor, IsNumberedWhereItsNameIsAnothersToo) {
  const auto model = [](const std::string& numbers) {
    return parse_processor("vendor_id\t: AuthenticAMD\n" + numbers + "model name\t: AMD EPYC\n",
                           "x86_64")
        .model;
  };
  EXPECT_EQ(model("cpu family\t: 26\nmodel\t\t: 2\nstepping\t: 1\n"),
            "AMD EPYC (family 26, model 2, stepping 1)");
  EXPECT_EQ(model("cpu family\t: 25\nmodel\t\t: 17\n"), "AMD EPYC (family 25, model 17)");
}

TEST(Processor, ArmHasNoModelName) {
  const auto processor = parse_processor(
      "processor\t: 0\nFeatures\t: fp asimd asimdhp bf16 sve\nCPU implementer\t: 0x41\n"
      "CPU variant\t: 0x1\nCPU part\t: 0xd40\n",
      "aarch64");
  EXPECT_EQ(processor.model, "implementer 0x41, part 0xd40, variant 0x1");
  auto found = features(processor);
  EXPECT_TRUE(found.at("sve"));
  EXPECT_FALSE(found.at("sve2"));
}

TEST(Processor, WhereNothingIsKnown) {
  EXPECT_EQ(parse_processor("", "riscv64").model, "unknown");
  EXPECT_TRUE(parse_processor("", "riscv64").features.empty());
}

}  // namespace
}  // namespace plait::base
