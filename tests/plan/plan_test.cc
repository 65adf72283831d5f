// Plans and operators as text and as values (plait/plan.h, plait/operator.h).
#include "plait/plan.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tensor/sentence_of.h"

namespace plait {
namespace {

std::string refusal_of(const std::string& text) {
  return sentence_of([&] { parse_plan(text); });
}

TEST(Plans, AreWrittenAsTheyAreRead) {
  const std::vector<std::string> texts = {"serial",
                                          "fused",
                                          "fused chunk=128",
                                          "fused poll=0",
                                          "pipelined parts=4",
                                          "pipelined parts=8 first=100 last=25",
                                          "pipelined axis=rows parts=3",
                                          "pipelined axis=columns parts=64 poll=1000"};
  for (const std::string& text : texts) EXPECT_EQ(name(parse_plan(text)), text);
}

TEST(Plans, AreWrittenWithoutWhatMeansNothing) {
  EXPECT_EQ(name(Plan{.schedule = Schedule::fused, .parts = 8, .first = 10}), "fused");
  EXPECT_EQ(name(Plan{.schedule = Schedule::serial, .axis = Axis::rows, .chunk = 64}), "serial");
  EXPECT_EQ(name(Plan{.schedule = Schedule::pipelined, .chunk = 64}), "pipelined parts=4");
}

TEST(Plans, AreReadInAnyOrder) {
  const Plan plan = parse_plan("  last=10   parts=5 pipelined ");
  EXPECT_EQ(plan, (Plan{.schedule = Schedule::pipelined, .parts = 5, .last = 10}));
}

TEST(Plans, DifferInTheirFingerprints) {
  std::set<std::uint32_t> known;
  for (const char* text : {"serial", "fused", "fused chunk=64", "fused chunk=65", "pipelined",
                           "pipelined parts=5", "pipelined axis=rows", "pipelined last=99"})
    known.insert(fingerprint(parse_plan(text)));
  EXPECT_EQ(known.size(), 8U);
  EXPECT_EQ(fingerprint(parse_plan("fused")), fingerprint(Plan{}));
}

TEST(Plans, SayWhatCannotBeRead) {
  EXPECT_EQ(refusal_of(""),
            "plan: \"\" has no schedule; the schedules are serial, pipelined, fused");
  EXPECT_EQ(refusal_of("parts=4"),
            "plan: \"parts=4\" has no schedule; the schedules are serial, pipelined, fused");
  EXPECT_EQ(refusal_of("serial fused"), "plan: \"serial fused\" has two schedules; a plan has one");
  EXPECT_EQ(refusal_of("fussed"),
            "plan: fussed is neither a schedule (serial, pipelined, fused) nor NAME=VALUE");
  EXPECT_EQ(refusal_of("pipelined part=4"),
            "plan: unknown name part; known are parts, axis, first, last, chunk, "
            "poll");
  EXPECT_EQ(refusal_of("pipelined parts=four"),
            "plan: parts=four is not a whole number of 0 or more");
  EXPECT_EQ(refusal_of("pipelined parts=4 parts=5"),
            "plan: \"pipelined parts=4 parts=5\" contains parts more than once");
  EXPECT_EQ(refusal_of("pipelined axis=diagonal"),
            "plan: axis=diagonal is not an axis; the axes are rows, columns, natural");
  EXPECT_EQ(refusal_of("pipelined parts=65"), "plan: parts=65 is not between 1 and 64");
  EXPECT_EQ(refusal_of("pipelined parts=99999999999"),
            "plan: parts=2147483647 is not between 1 and 64");
  EXPECT_EQ(refusal_of("pipelined first=0"), "plan: first=0 is not between 1 and 1000 percent");
  EXPECT_EQ(refusal_of("fused poll=2000000"),
            "plan: poll=2000000 is not between 0 and 1000000 microseconds");
  EXPECT_EQ(refusal_of("fused chunk=-1"), "plan: chunk=-1 is not a whole number of 0 or more");
  EXPECT_EQ(refusal_of("fused parts=3"),
            "plan: \"fused parts=3\": only pipelined plans have parts");
  EXPECT_EQ(refusal_of("serial axis=rows"),
            "plan: \"serial axis=rows\": only pipelined plans have axis");
  EXPECT_EQ(refusal_of("chunk=64 pipelined"),
            "plan: \"chunk=64 pipelined\": only fused plans have chunk");
}

TEST(Operators, AreWrittenAsTheyAreRead) {
  for (int i = 0; i < kOperators; ++i) {
    const auto op = static_cast<Operator>(i);
    EXPECT_EQ(parse_operator(name(op)), op);
  }
  EXPECT_EQ(parse_operator("matmul-all-reduce"), Operator::matmul_all_reduce);
  EXPECT_EQ(parse_operator("all_reduce"), std::nullopt);
  EXPECT_EQ(parse_operator(""), std::nullopt);
}

TEST(Operators, HaveADefaultPlanThatTheyCanFollow) {
  for (int i = 0; i < kOperators; ++i) {
    const auto op = static_cast<Operator>(i);
    EXPECT_TRUE(has_schedule(op, default_plan(op).schedule)) << name(op);
    EXPECT_TRUE(has_schedule(op, Schedule::serial)) << name(op);
  }
  EXPECT_EQ(default_plan(Operator::matmul_all_reduce).schedule, Schedule::fused);
  EXPECT_FALSE(has_schedule(Operator::all_reduce_matmul, Schedule::fused));
}

}  // namespace
}  // namespace plait
