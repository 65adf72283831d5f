// plait has two models of a schedule. The cost model (src/plan) chooses plans in microseconds; the
// simulation runs the schedule itself, on ranks with modelled clocks. Both must agree on machines
// that both can describe.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "ops/operators.h"
#include "plan/cost_model.h"
#include "predict/operator.h"

namespace plait::predict {
namespace {

constexpr double kFlopsPerNs = 100;
constexpr double kBytesPerNs = 20;  // that a rank reads and writes
constexpr base::Nanoseconds kProductStart = 3000;
constexpr base::Nanoseconds kCopyStart = 500;

// How much longer or shorter than the simulation the cost model may predict a call, as a share.
// Sums that have come on an s8 wire count as f32 in the cost model, because that is what they cost
// in a cache, and as bytes in the simulation.
constexpr double kError = 0.1;
constexpr double kErrorOfCoded = 0.25;

// Caches are left out, because the simulation has none.
plan::MachineProfile profile() {
  plan::MachineProfile profile = {};
  // Reading a weight of two bytes takes as long as multiplying this many rows by it.
  constexpr auto kFewestRows = static_cast<std::int64_t>(kFlopsPerNs / kBytesPerNs);
  for (const char* kind : {"bf16", "f32"})
    profile.products.push_back({.kind = kind, .rows = kFewestRows, .flops_per_ns = kFlopsPerNs});
  profile.transports = {{.name = "shm"}};
  profile.copy = kBytesPerNs / 2;  // a copied byte is read and written
  profile.sum = kBytesPerNs;
  profile.chunk = kCopyStart;
  profile.start = kProductStart;
  profile.narrow = 0;
  profile.beside = 1;
  return profile;
}

Device device() {
  return {.name = "plain",
          .peak_flops = kFlopsPerNs * 1e9,
          .attained = 1,
          .peak_memory = kBytesPerNs * 1e9,
          .memory_share = 1,
          .units = 1,
          .tiles = {{1, 64, 1.0}},
          .launch = kProductStart,
          .memory_launch = kCopyStart};
}

class Random {
 public:
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bits_() % static_cast<std::uint64_t>(high - low + 1));
  }
  template <class Value>
  Value of(const std::vector<Value>& values) {
    return values[static_cast<std::size_t>(
        between(0, static_cast<std::int64_t>(values.size()) - 1))];
  }

 private:
  std::mt19937_64 bits_{1};
};

PlanKey random_problem(Random& random) {
  PlanKey key = {.op = Operator::matmul, .m = 0, .n = 0, .k = 0};
  key.op = random.of<Operator>({Operator::matmul_all_reduce, Operator::matmul_reduce_scatter,
                                Operator::matmul_all_gather, Operator::all_gather_matmul,
                                Operator::reduce_scatter_matmul, Operator::all_reduce_matmul});
  key.world = static_cast<int>(random.of<std::int64_t>({2, 3, 4, 8}));
  key.m = random.between(64, 2048);
  // Whole panels, because only the cost model rounds narrower products up to them.
  key.n = std::int64_t{64} * key.world * random.between(1, 4096 / 64 / key.world);
  key.k = random.between(32, 2048);
  key.x = random.of<Dtype>({Dtype::bf16, Dtype::f32});
  key.out = random.of<Dtype>({Dtype::bf16, Dtype::f32});
  key.wire =
      traits_of(key.op).shares_k ? random.of<Dtype>({Dtype::f32, Dtype::bf16, Dtype::s8}) : key.x;
  key.transport = "shm";
  key.link = Link{.bytes_per_second = random.of<double>({3e7, 1e8, 3e8, 1e9, 3e9, 1e10}),
                  .latency_ns = random.of<std::int64_t>({1000, 5000, 50'000})};
  return key;
}

double simulated(const PlanKey& key, const Plan& plan) {
  const Machine machine = {.device = device(),
                           .network = {.link = *key.link, .wiring = Wiring::pairs},
                           .ranks = key.world};
  return static_cast<double>(predict(machine,
                                     {.op = key.op,
                                      .m = key.m,
                                      .n = key.n,
                                      .k = key.k,
                                      .x = key.x,
                                      .out = key.out,
                                      .wire = traits_of(key.op).shares_k ? key.wire : Dtype::f32},
                                     plan)
                                 .time);
}

TEST(Models, AgreeOnRandomProblems) {
  const plan::CostModel model(profile());
  Random random;
  for (int i = 0; i < 200; ++i) {
    const PlanKey key = random_problem(random);
    const Plan plan = random.of(plan::candidates(key));
    const double times = model.predict(key, plan).total / simulated(key, plan);
    EXPECT_NEAR(times, 1, key.wire == Dtype::s8 ? kErrorOfCoded : kError)
        << "\"" << name(plan) << "\" for " << name(key);
  }
}

}  // namespace
}  // namespace plait::predict
