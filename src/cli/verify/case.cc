#include "cli/verify/case.h"

#include <algorithm>
#include <random>

#include "base/check.h"
#include "ops/shapes.h"

namespace plait::cli {
namespace {

// The same numbers on every platform, which the standard's distributions don't promise.
class Dice {
 public:
  Dice(std::uint64_t seed, std::uint64_t number) : random_(seed * 0x9e3779b97f4a7c15ULL + number) {
    random_.discard(8);
  }

  std::int64_t below(std::int64_t end) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(end));
  }
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  bool one_in(std::int64_t n) { return below(n) == 0; }
  template <class Value>
  Value of(const std::vector<Value>& values) {
    return values[static_cast<std::size_t>(below(static_cast<std::int64_t>(values.size())))];
  }

 private:
  std::mt19937_64 random_;
};

Dtype dtype(Dice& dice) { return dice.of<Dtype>({Dtype::f32, Dtype::bf16, Dtype::f16}); }

// Tiny, odd, round and larger ones, and sometimes none.
std::int64_t size(Dice& dice, std::int64_t most) {
  switch (dice.below(10)) {
    case 0:
      return dice.one_in(3) ? 0 : 1;
    case 1:
    case 2:
    case 3:
      return dice.between(1, 17);
    case 4:
    case 5:
    case 6:
      return dice.between(1, std::min<std::int64_t>(most, 130));
    case 7:
      return 64 * dice.between(1, std::max<std::int64_t>(1, most / 64));
    default:
      return dice.between(1, most);
  }
}

QuantScheme scheme(Dice& dice) {
  const int bits = dice.one_in(2) ? 8 : 4;
  const bool offsets = dice.one_in(3);
  switch (dice.below(3)) {
    case 0:
      return {.bits = bits, .per = QuantPer::tensor, .group = 0, .offsets = offsets};
    case 1:
      return {.bits = bits, .per = QuantPer::channel, .group = 0, .offsets = offsets};
    default:
      return {.bits = bits,
              .per = QuantPer::group,
              .group = dice.one_in(2) ? 32 : dice.between(1, 140),
              .offsets = offsets};
  }
}

Plan random_plan(Dice& dice, Operator op) {
  Plan plan;
  const bool fused = has_schedule(op, Schedule::fused) && dice.one_in(2);
  plan.schedule = fused ? Schedule::fused : Schedule::pipelined;
  plan.poll = dice.of<std::int64_t>({0, 0, 20, 200});
  if (fused) {
    plan.chunk = dice.of<std::int64_t>({0, 0, 1, 7, 64, 128, 200});
    return plan;
  }
  plan.parts = static_cast<int>(dice.of<std::int64_t>({1, 2, 3, 4, 8, 64, dice.between(1, 20)}));
  if (is_compute_first(op)) plan.axis = dice.of<Axis>({Axis::natural, Axis::rows, Axis::columns});
  if (dice.one_in(3)) plan.first = static_cast<int>(dice.between(1, 300));
  if (dice.one_in(3)) plan.last = static_cast<int>(dice.between(1, 300));
  return plan;
}

std::string list(const std::vector<std::int64_t>& values) {
  const bool same = std::all_of(values.begin(), values.end(),
                                [&](std::int64_t value) { return value == values[0]; });
  std::string text;
  for (std::size_t i = 0; i < (same ? 1 : values.size()); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(values[i]);
  }
  return text;
}

}  // namespace

VerifyCase random_case(std::uint64_t seed, std::int64_t number, int world,
                       const std::vector<Operator>& ops) {
  Dice dice(seed, static_cast<std::uint64_t>(number) * 64 + static_cast<std::uint64_t>(world));
  VerifyCase one;
  one.seed = seed * 1000003 + static_cast<std::uint64_t>(number);
  one.op = dice.of(ops);
  // One dimension is large now and then, rarely two.
  const bool large = dice.one_in(12);
  one.m = size(dice, large ? 700 : 150);
  const std::int64_t n = size(dice, large && dice.one_in(2) ? 1500 : 260);
  const std::int64_t k = size(dice, large && dice.one_in(2) ? 1500 : 200);
  // What a rank multiplies alone may differ from rank to rank.
  const bool uneven = dice.one_in(3);
  for (int rank = 0; rank < world; ++rank) {
    const std::int64_t other = uneven ? dice.below(40) : 0;
    const ops::Split split = ops::split_of(one.op);
    one.n.push_back(split == ops::Split::n ? n + other : n);
    one.k.push_back(split == ops::Split::k ? k + other : k);
  }
  const bool usual = dice.one_in(2);
  one.x = usual ? Dtype::bf16 : dtype(dice);
  one.weight = usual ? Dtype::bf16 : dtype(dice);
  one.out = usual ? Dtype::bf16 : dtype(dice);
  one.wire = dice.one_in(2) ? Dtype::f32 : dtype(dice);
  if (dice.one_in(3)) one.scheme = scheme(dice);
  one.layout = dice.one_in(2) ? WeightLayout::out_in : WeightLayout::in_out;
  one.packed = one.scheme || dice.one_in(2);
  one.bias = dice.one_in(2);
  one.gathered = one.op == Operator::all_gather_matmul && dice.one_in(2);
  if (one.op != Operator::matmul) {
    for (int i = 0; i < 3; ++i) one.plans.push_back(random_plan(dice, one.op));
    if (has_schedule(one.op, Schedule::fused)) one.plans.emplace_back();
  }
  for (std::size_t i = 0; i < one.plans.size() + 1; ++i)
    one.threads.push_back(dice.one_in(4) ? 2 : 1);
  one.delays = dice.one_in(8);
  return one;
}

std::optional<Link> random_link(std::uint64_t seed, std::int64_t number) {
  Dice dice(seed ^ 0x11a4ULL, static_cast<std::uint64_t>(number));
  if (!dice.one_in(3)) return std::nullopt;
  return Link{.bytes_per_second = dice.of<double>({1e8, 1e9, 1e10}),
              .latency_ns = dice.of<std::int64_t>({0, 1000, 20000, 200000})};
}

std::string describe(const VerifyCase& one) {
  std::string text = base::sentence(
      name(one.op), " m=", one.m, " n=", list(one.n), " k=", list(one.k), " x=", name(one.x),
      " w=", one.scheme ? name(*one.scheme) : std::string(name(one.weight)), " out=", name(one.out),
      " wire=", name(one.wire), ' ', name(one.layout));
  if (one.packed) text += " packed";
  if (one.bias) text += " bias";
  if (one.gathered) text += " gathered";
  if (one.delays) text += " delays";
  return text;
}

}  // namespace plait::cli
