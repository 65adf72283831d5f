// plait verify is only as good as the variety of its problems.
#include "verify/case.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "ops/shapes.h"
#include "plan/sizes.h"

namespace plait::verify {
namespace {

std::string way_of(const VerifyCase& one, int world) {
  if (ops::makes_partial_sums(one.op)) {
    const PartialSums sums = {
        .m = one.m, .n = one.n.front(), .dtype = ops::wire_of(one.op, one.x, one.wire)};
    if (!are_copied_at_once(sums)) return "written into slots";
    const bool one_step = one.op == Operator::matmul_all_reduce && is_one_step(sums, world);
    return one_step ? "copied, one step" : "copied";
  }
  if (one.op != Operator::all_gather_matmul) return "others";
  const bool first = gathers_all_first({.m = one.m, .n = one.n.front()}, world, /*linked=*/false);
  return first ? "gathered first" : "gathered as they come";
}

constexpr int kWorld = 2;
constexpr int kCases = 120;  // so few that a sanitizer can run them

std::vector<Operator> all_operators() {
  std::vector<Operator> ops;
  ops.reserve(kOperators);
  for (int op = 0; op < kOperators; ++op) ops.push_back(static_cast<Operator>(op));
  return ops;
}

TEST(RandomCases, TakeEveryWayOften) {
  const std::vector<Operator> ops = all_operators();
  std::map<std::string, int> ways;
  for (int number = 0; number < kCases; ++number)
    ++ways[way_of(random_case(/*seed=*/1, number, kWorld, ops), kWorld)];
  for (const char* way : {"written into slots", "copied, one step", "copied", "gathered first"})
    EXPECT_GE(ways[way], 5) << way;
  EXPECT_GE(ways["gathered as they come"], 1);
}

TEST(RandomCases, AreOfAllKindsOfNumbersAndModes) {
  const std::vector<Operator> ops = all_operators();
  std::map<std::string, int> kinds;
  for (int number = 0; number < kCases; ++number) {
    const VerifyCase one = random_case(/*seed=*/1, number, kWorld, ops);
    ++kinds[std::string(name(one.numbers))];
    if (one.modes) ++kinds["modes"];
    if (one.two_groups) ++kinds["two_groups"];
    if (one.spare > 0) ++kinds[one.prepared ? "fewer than prepared" : "fewer than before"];
    if (one.k.front() > 1500) ++kinds["deep"];
    if (one.numbers != Numbers::usual && one.wire == Dtype::f16) ++kinds["overflow"];
  }
  for (const char* kind :
       {"wide", "broken", "modes", "two_groups", "fewer than prepared", "fewer than before"})
    EXPECT_GE(kinds[kind], 10) << kind;
  EXPECT_GE(kinds["overflow"], 1);
  EXPECT_GE(kinds["deep"], 1);
}

}  // namespace
}  // namespace plait::verify
