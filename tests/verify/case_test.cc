// plait verify is only as good as the variety of its problems.
#include "verify/case.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gemm/leaves.h"
#include "ops/shapes.h"
#include "plan/sizes.h"
#include "verify/layer_case.h"

namespace plait::verify {
namespace {

std::string way_of(const VerifyCase& one, int world) {
  if (traits_of(one.op).shares_k) {
    const plan::PartialSums sums = {
        .m = one.m, .n = one.n.front(), .dtype = ops::wire_of(one.op, one.x, one.wire)};
    if (!plan::are_copied_at_once(sums)) return "written into slots";
    const bool one_step = one.op == Operator::matmul_all_reduce && plan::is_one_step(sums, world);
    return one_step ? "copied, one step" : "copied";
  }
  if (one.op != Operator::all_gather_matmul) return "others";
  const bool first =
      plan::gathers_all_first({.m = one.m, .n = one.n.front()}, world, /*linked=*/false);
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
    if (traits_of(one.op).shares_k && one.wire == Dtype::s8) ++kinds["s8 wire"];
  }
  for (const char* kind :
       {"wide", "broken", "modes", "two_groups", "fewer than prepared", "fewer than before"})
    EXPECT_GE(kinds[kind], 10) << kind;
  EXPECT_GE(kinds["overflow"], 1);
  EXPECT_GE(kinds["s8 wire"], 1);
  EXPECT_GE(kinds["deep"], 1);
}

// The leaves of each rank's share, of cases that are compared with one rank.
class NodesOfCases {
 public:
  void add(std::int64_t share, int world, const std::optional<QuantScheme>& scheme) {
    const gemm::Depth depth = {.k = share, .group = scheme ? scheme->group : 0};
    ++leaves_[gemm::Leaves(depth, world).count()];
    if (scheme) ++quantised_;
  }
  void expect_all(int world) {
    for (int leaves = 1; leaves * world <= 16; leaves *= 2)
      EXPECT_GE(leaves_[leaves], 3) << leaves << " leaves of a rank, world " << world;
    EXPECT_GE(quantised_, 3) << "world " << world;
  }

 private:
  std::map<std::int64_t, int> leaves_;
  int quantised_ = 0;
};

TEST(RandomCases, HaveSharesOfOneLeafAndOfSeveral) {
  for (const int world : {2, 4, 8, 16}) {
    NodesOfCases operators;
    NodesOfCases layers;
    for (int number = 0; number < 10 * kCases; ++number) {
      const VerifyCase one = random_case(/*seed=*/1, number, world, all_operators());
      if (is_as_on_one_rank(one)) operators.add(one.k[0], world, one.scheme);
      const LayerCase layer = random_layer_case(/*seed=*/1, number, world);
      if (is_as_on_one_rank(layer)) layers.add(layer.shares[0], world, layer.scheme);
    }
    operators.expect_all(world);
    layers.expect_all(world);
  }
}

TEST(RandomCases, SayWhichTreeTheyHave) {
  VerifyCase one;
  one.op = Operator::matmul_all_reduce;
  one.n = {8, 8};
  one.k = {1024, 1024};
  EXPECT_TRUE(describe(one).ends_with(" tree=k")) << describe(one);
  one.k[1] = 992;
  EXPECT_TRUE(describe(one).ends_with(" tree=ranks")) << describe(one);
}

}  // namespace
}  // namespace plait::verify
