#include "cli/verify/layer_case.h"

#include <algorithm>

#include "base/check.h"
#include "cli/verify/case.h"
#include "cli/verify/dice.h"

namespace plait::cli {
namespace {

LayerVariant random_variant(Dice& dice, Operator op) {
  return {.plan = dice.one_in(4) ? Plan{.schedule = Schedule::serial} : random_plan(dice, op),
          .recompute_all_gather = dice.one_in(2),
          .column_backward = dice.one_in(2),
          .aligned_packing = !dice.one_in(3),
          .threads = dice.one_in(4) ? 2 : 1};
}

}  // namespace

LayerCase random_layer_case(std::uint64_t seed, std::int64_t number, int world) {
  // The problems differ from those of operators with the same number.
  Dice dice(seed ^ 0x1a7e5ULL,
            static_cast<std::uint64_t>(number) * 64 + static_cast<std::uint64_t>(world));
  LayerCase one;
  one.seed = seed * 1000003 + static_cast<std::uint64_t>(number);
  one.row = dice.one_in(2);
  one.sequence_parallel = !dice.one_in(3);
  const bool large = dice.one_in(12);
  one.m = random_size(dice, large ? 500 : 120);
  const std::int64_t share = random_size(dice, large && dice.one_in(2) ? 700 : 150);
  const bool uneven = dice.one_in(3);
  for (int rank = 0; rank < world; ++rank)
    one.shares.push_back(share + (uneven ? dice.below(30) : 0));
  one.other = random_size(dice, large && dice.one_in(2) ? 700 : 150);
  if (!dice.one_in(2)) {
    for (Dtype* dtype : {&one.x, &one.weight, &one.out, &one.grad_out, &one.grad_x})
      *dtype = random_dtype(dice);
  }
  one.grad_weight = random_dtype(dice);
  one.wire = dice.one_in(2) ? Dtype::f32 : random_dtype(dice);
  one.layout = dice.one_in(2) ? WeightLayout::out_in : WeightLayout::in_out;
  one.gap = dice.one_in(2) ? 3 : 0;
  one.packed = dice.one_in(4);
  one.bias = dice.one_in(2);
  one.asks_x = !dice.one_in(5);
  one.asks_weight = !dice.one_in(5);
  one.asks_bias = one.bias && !dice.one_in(5);
  one.accumulate = dice.one_in(2);
  one.in_flight = dice.one_in(3) ? static_cast<int>(dice.between(2, 3)) : 1;
  one.delays = dice.one_in(8);
  const Operator op = one.row ? Operator::matmul_all_reduce : Operator::all_gather_matmul;
  for (int i = 0; i < 3; ++i) one.variants.push_back(random_variant(dice, op));
  one.variants.push_back({.plan = {}});
  one.numbers = random_numbers(dice);
  one.modes = dice.one_in(2);
  return one;
}

std::string describe(const LayerCase& one) {
  std::string text = base::sentence(
      one.row ? "row" : "column", " layer, m=", one.m,
      one.row ? " inputs=" : " outputs=", show_shares(one.shares),
      one.row ? " outputs=" : " inputs=", one.other, " x=", name(one.x), " w=", name(one.weight),
      " out=", name(one.out), " grad_out=", name(one.grad_out), " grad_x=", name(one.grad_x),
      " grad_weight=", name(one.grad_weight), " wire=", name(one.wire), ' ', name(one.layout),
      " in_flight=", one.in_flight);
  const auto say = [&](bool is, const char* word) {
    if (is) text += word;
  };
  say(one.gap > 0, " gaps");
  say(one.sequence_parallel, " sequence_parallel");
  say(one.packed, " packed");
  say(one.bias, " bias");
  say(!one.asks_x, " no_grad_x");
  say(!one.asks_weight, " frozen");
  say(one.asks_bias, " grad_bias");
  say(one.accumulate, " accumulate");
  say(one.delays, " delays");
  say(one.modes, " modes");
  if (one.numbers != Numbers::usual) text += base::sentence(" numbers=", name(one.numbers));
  return text;
}

}  // namespace plait::cli
