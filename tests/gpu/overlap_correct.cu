// Random cases: all schedules give the same bits, and the right ones where these are known exactly.
#include <unistd.h>

#include <memory>

#include "gpu/figure.h"
#include "gpu/overlap_cases.cuh"
#include "gpu/overlap_checks.h"

namespace plait::gpu {
namespace {

// Runs the case in all schedules. Returns how many checks failed.
// With one rank there is one schedule, and nothing to compare it with but the right values.
int check_case(VirtualRanks& ranks, const Case& c, std::mt19937& random, bool wants_exact) {
  const bool exactly = wants_exact || c.world == 1;
  CaseOperands operands(c);
  DeviceBuffer<double> exact(exactly ? 1LL * c.m * c.n + 1 : 1);
  DeviceBuffer<double> one(exactly ? 1LL * c.m * c.n + 1 : 1);
  // Operands have different values: sums of squares would not fit into a wire of bf16.
  if (exactly) {
    operands.fill(c, [&](auto* data, std::int64_t count, std::uint64_t seed) {
      fill_integers(data, count, 1000 * seed + random() % 1000, 2);
    });
  } else {
    operands.fill(c, [&](auto* data, std::int64_t count, std::uint64_t seed) {
      fill_random(data, count, 1000 * seed + random() % 1000);
    });
  }
  int failures = 0;
  std::vector<std::vector<char>> first;
  for (const NamedPlan& plan : plans_for(c.world)) {
    if (c.world == 1 && plan.plan.schedule != DeviceSchedule::fused) continue;
    ranks.poison();
    for (auto& out : operands.out) out.fill_bytes(0xff);
    check_cuda(cudaDeviceSynchronize());
    if (!queue_all(ranks, c, operands, plan, random() % 2 == 0 ? &random : nullptr)) return 1;
    finish(ranks, c, plan);
    const std::vector<std::vector<char>> results = results_of(operands);
    if (exactly) {
      const std::int64_t wrong = wrong_elements(c, operands, exact, one);
      if (wrong != 0) {
        std::printf("FAILED %s, %s: %lld elements are wrong\n", text(c).c_str(), plan.name,
                    static_cast<long long>(wrong));
        ++failures;
      }
    }
    if (first.empty()) first = results;
    if (results != first) {
      std::printf("FAILED %s, %s: other bits than in the first plan\n", text(c).c_str(), plan.name);
      ++failures;
    }
  }
  return failures;
}

Case random_case(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  static const DeviceOperator kOps[] = {DeviceOperator::matmul_reduce_scatter,
                                        DeviceOperator::matmul_all_reduce,
                                        DeviceOperator::all_gather_matmul, DeviceOperator::matmul};
  static const int kWorlds[] = {1, 2, 2, 3, 4, 5, 6, 7, 8};
  Case c = {};
  c.op = kOps[below(16) == 0 ? 3 : below(3)];
  c.world = c.op == DeviceOperator::matmul ? 1 : kWorlds[below(9)];
  c.m = below(4) == 0 ? below(20) : 1 + below(1100);
  c.n = below(3) == 0 ? 8 * (1 + below(100)) : 1 + below(700);
  c.k = below(20) == 0 ? 0 : 8 * (1 + below(60));
  c.wire = below(2) == 0 ? cuda::kF32 : cuda::kBf16;
  c.out = below(3);
  c.bias = below(2) == 0;
  c.gathered = c.op == DeviceOperator::all_gather_matmul && below(2) == 0;
  return c;
}

// Calls of other sizes and operators follow one another without a pause, while ranks are late by
// turns: each must give what it gives alone.
int check_queue(VirtualRanks& ranks, int world, std::mt19937& random) {
  constexpr int kCalls = 12;
  std::vector<Case> cases;
  std::vector<std::unique_ptr<CaseOperands>> operands;
  std::vector<std::vector<std::vector<char>>> alone;
  const auto plans = plans_for(world);
  while (static_cast<int>(cases.size()) < kCalls) {
    Case c = random_case(random);
    if (c.world == 1) continue;
    c.world = world;
    cases.push_back(c);
    operands.push_back(std::make_unique<CaseOperands>(c));
    fill_with_integers(c, *operands.back(), random() % 1000);
    for (auto& out : operands.back()->out) out.fill_bytes(0xff);
    check_cuda(cudaDeviceSynchronize());
    if (!queue_all(ranks, c, *operands.back(), plans[1])) return 1;
    finish(ranks, c, plans[1]);
    alone.push_back(results_of(*operands.back()));
    for (auto& out : operands.back()->out) out.fill_bytes(0xff);
  }
  check_cuda(cudaDeviceSynchronize());
  for (int call = 0; call < kCalls; ++call) {
    const auto i = static_cast<std::size_t>(call);
    if (!queue_all(ranks, cases[i], *operands[i], plans[random() % 4 == 0 ? 0 : 1], &random))
      return 1;
  }
  finish(ranks, cases.back(), plans[1]);
  int failures = 0;
  for (int call = 0; call < kCalls; ++call) {
    const auto i = static_cast<std::size_t>(call);
    if (results_of(*operands[i]) == alone[i]) continue;
    std::printf("FAILED %s: other bits between other calls than alone\n", text(cases[i]).c_str());
    ++failures;
  }
  return failures;
}

}  // namespace

int check_correct(int cases, unsigned seed) {
  std::vector<std::unique_ptr<VirtualRanks>> groups(cuda::kMostRanks + 1);
  cuda::MailboxNeeds most;
  for (int world = 1; world <= cuda::kMostRanks; ++world) {
    for (const auto op : {DeviceOperator::matmul_all_reduce, DeviceOperator::all_gather_matmul}) {
      const auto needs = cuda::needs_of(problem_of({.op = op,
                                                    .world = world,
                                                    .m = 1100,
                                                    .n = 800,
                                                    .k = 480,
                                                    .wire = cuda::kF32,
                                                    .out = cuda::kF32,
                                                    .bias = false,
                                                    .gathered = false}),
                                        world);
      most = {.flags = std::max(most.flags, needs.flags),
              .bytes = std::max(most.bytes, needs.bytes),
              .staged = std::max(most.staged, needs.staged)};
    }
  }
  std::mt19937 random(seed);
  int failures = 0;
  for (int i = 0; i < cases && failures < 20; ++i) {
    const Case c = random_case(random);
    auto& ranks = groups[static_cast<std::size_t>(c.world)];
    if (!ranks) ranks = std::make_unique<VirtualRanks>(c.world, most);
    alarm(60);
    failures += check_case(*ranks, c, random, i % 2 == 0);
    if (i % 8 == 7 && c.world > 1) failures += check_queue(*ranks, c.world, random);
    std::fflush(stdout);
  }
  Figure("correct").number("cases", cases).number("failures", failures).print();
  return failures == 0 ? 0 : 1;
}

}  // namespace plait::gpu
