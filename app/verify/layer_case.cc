#include "verify/layer_case.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "plait/gemm.h"
#include "verify/case.h"
#include "verify/nodes.h"
#include "verify/random.h"

namespace plait::verify {
namespace {

LayerVariant random_variant(Random& random, Operator op) {
  return {.plan = random.one_in(4) ? Plan{.schedule = Schedule::serial} : random_plan(random, op),
          .recompute_all_gather = random.one_in(2),
          .column_backward = random.one_in(2),
          .aligned_packing = !random.one_in(3),
          .threads = random.one_in(4) ? 2 : 1};
}

// Shares of a quantised weight are multiples of this: they are cut from one that is quantised as a
// whole, between groups and between bytes.
std::int64_t unit_of(const QuantScheme& scheme) {
  return std::lcm(std::max<std::int64_t>(scheme.group, 1), std::int64_t{2});
}

void make_quantised(Random& random, LayerCase& one) {
  one.scheme = random_scheme(random);
  const std::int64_t unit = unit_of(*one.scheme);
  for (std::int64_t& own : one.shares) own = std::max(unit, own / unit * unit);
  one.other = std::max<std::int64_t>(one.other, 1);
}

// Makes the shares equal, and nodes of a sum's tree.
void make_nodes(Random& random, LayerCase& one, int world) {
  const bool is_grouped = one.scheme && one.scheme->per == QuantPer::group;
  const std::int64_t share = random_node(random, world, is_grouped ? unit_of(*one.scheme) : 32);
  one.m = random.between(1, as_many_rows(30, share * world));
  one.other = one.other % as_many_rows(70, share * world) + 1;
  one.wire = Dtype::f32;
  for (std::int64_t& own : one.shares) own = share;
}

}  // namespace

SumTree tree_of(const LayerCase& one) {
  const OpDesc desc = {.op = Operator::matmul_all_reduce,
                       .m = one.m,
                       .n = one.other,
                       .k = 0,
                       .weight = {.scheme = one.scheme, .is_packed = one.scheme.has_value()}};
  return tree_of(desc, one.shares, one.wire);
}

bool is_as_on_one_rank(const LayerCase& one) { return one.shares.size() > 1 && tree_of(one); }

LayerCase random_layer_case(std::uint64_t seed, std::int64_t number, int world) {
  // The problems differ from those of operators with the same number.
  Random random(seed ^ 0x1a7e5ULL,
                static_cast<std::uint64_t>(number) * 64 + static_cast<std::uint64_t>(world));
  LayerCase one;
  one.seed = seed * 1000003 + static_cast<std::uint64_t>(number);
  one.row = random.one_in(2);
  one.sequence_parallel = !random.one_in(3);
  const bool large = random.one_in(12);
  one.m = random_size(random, large ? 500 : 120);
  const std::int64_t share = random_size(random, large && random.one_in(2) ? 700 : 150);
  const bool uneven = random.one_in(3);
  for (int rank = 0; rank < world; ++rank)
    one.shares.push_back(share + (uneven ? random.below(30) : 0));
  one.other = random_size(random, large && random.one_in(2) ? 700 : 150);
  if (!random.one_in(2)) {
    for (Dtype* dtype : {&one.x, &one.weight, &one.out, &one.grad_out, &one.grad_x})
      *dtype = random_dtype(random);
  }
  one.grad_weight = random_dtype(random);
  one.wire = random.one_in(2) ? Dtype::f32 : random_wire(random);
  one.layout = random.one_in(2) ? WeightLayout::out_in : WeightLayout::in_out;
  one.gap = random.one_in(2) ? 3 : 0;
  one.packed = random.one_in(4);
  one.bias = random.one_in(2);
  one.asks_x = !random.one_in(5);
  one.asks_weight = !random.one_in(5);
  one.asks_bias = one.bias && !random.one_in(5);
  one.accumulate = random.one_in(2);
  one.in_flight = random.one_in(3) ? static_cast<int>(random.between(2, 3)) : 1;
  one.delays = random.one_in(8);
  const Operator op = one.row ? Operator::matmul_all_reduce : Operator::all_gather_matmul;
  for (int i = 0; i < 3; ++i) one.variants.push_back(random_variant(random, op));
  one.variants.push_back({.plan = {}});
  one.numbers = random_numbers(random);
  one.modes = random.one_in(2);
  if (random.one_in(6)) make_quantised(random, one);
  if (can_have_nodes(world) && random.one_in(3)) make_nodes(random, one, world);
  return one;
}

std::string describe(const LayerCase& one) {
  std::string text =
      base::sentence(one.row ? "row" : "column", " layer, m=", one.m,
                     one.row ? " inputs=" : " outputs=", show_shares(one.shares),
                     one.row ? " outputs=" : " inputs=", one.other, " x=", name(one.x),
                     " w=", one.scheme ? name(*one.scheme) : std::string(name(one.weight)),
                     " out=", name(one.out), " grad_out=", name(one.grad_out),
                     " grad_x=", name(one.grad_x), " grad_weight=", name(one.grad_weight),
                     " wire=", name(one.wire), ' ', name(one.layout), " in_flight=", one.in_flight);
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
  say(true, tree_of(one) ? " tree=k" : " tree=ranks");
  if (one.numbers != Numbers::usual) text += base::sentence(" numbers=", name(one.numbers));
  return text;
}

}  // namespace plait::verify
