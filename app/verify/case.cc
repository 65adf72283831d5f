#include "verify/case.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "plait/gemm.h"
#include "verify/nodes.h"
#include "verify/random.h"

namespace plait::verify {

namespace {

// Makes sums of many products, with few rows and columns to save time.
void make_deep(Random& random, VerifyCase& one) {
  constexpr std::int64_t kDeepest = 20'000;
  const std::int64_t more = random.between(1500, kDeepest);
  one.m = random.between(1, 12);
  for (std::int64_t& n : one.n) n = n % 70 + 1;
  for (std::int64_t& k : one.k) k += more;
}

// Few rows by a plain weight are multiplied by a loop of their own.
void make_few(Random& random, VerifyCase& one) {
  one.m = random.between(1, 9);
  one.packed = one.scheme.has_value();
}

// Makes the shares of k equal, and nodes of the sum's tree.
void make_nodes(Random& random, VerifyCase& one, int world) {
  const bool is_grouped = one.scheme && one.scheme->per == QuantPer::group;
  const std::int64_t share = random_node(random, world, is_grouped ? one.scheme->group : 32);
  one.m = random.between(1, as_many_rows(40, share * world));
  const std::int64_t n = one.n[0] % as_many_rows(100, share * world) + 1;
  std::fill(one.n.begin(), one.n.end(), n);
  std::fill(one.k.begin(), one.k.end(), share);
  one.wire = Dtype::f32;
}

}  // namespace

SumTree tree_of(const VerifyCase& one) {
  const OpDesc desc = {
      .op = one.op,
      .m = one.m,
      .n = one.n[0],
      .k = 0,
      .x = one.x,
      .weight = {.dtype = one.weight, .scheme = one.scheme, .is_packed = one.packed},
      .out = one.out};
  return tree_of(desc, one.k, one.wire);
}

bool is_as_on_one_rank(const VerifyCase& one) {
  return one.k.size() > 1 && traits_of(one.op).shares_k && tree_of(one);
}

VerifyCase random_case(std::uint64_t seed, std::int64_t number, int world,
                       const std::vector<Operator>& ops) {
  Random random(seed, static_cast<std::uint64_t>(number) * 64 + static_cast<std::uint64_t>(world));
  VerifyCase one;
  one.seed = seed * 1000003 + static_cast<std::uint64_t>(number);
  one.op = random.of(ops);
  // Sometimes one dimension is large, rarely two.
  const bool large = random.one_in(12);
  // Products of more than 1024 rows are divided into blocks of rows. They take long, so there are
  // few.
  one.m = random.one_in(40) ? random.between(1025, 1600) : random_size(random, large ? 700 : 150);
  std::int64_t n = random_size(random, large && random.one_in(2) ? 1500 : 260);
  std::int64_t k = random_size(random, large && random.one_in(2) ? 1500 : 200);
  // Large sums are written straight into slots; few sums are copied there in every plan.
  if (traits_of(one.op).shares_k && random.one_in(3)) {
    one.m = random.between(200, 500);
    n = random.between(700, 1100);
    k = random_size(random, 40);
  }
  // The sizes of ranks' own products may differ.
  const bool uneven = random.one_in(3);
  for (int rank = 0; rank < world; ++rank) {
    const std::int64_t other = uneven ? random.below(40) : 0;
    const OperatorTraits& traits = traits_of(one.op);
    one.n.push_back(traits.shares_n ? n + other : n);
    one.k.push_back(traits.shares_k ? k + other : k);
  }
  const bool usual = random.one_in(2);
  one.x = usual ? Dtype::bf16 : random_dtype(random);
  one.weight = usual ? Dtype::bf16 : random_dtype(random);
  one.out = usual ? Dtype::bf16 : random_dtype(random);
  one.wire = random.one_in(2) ? Dtype::f32 : random_wire(random);
  if (random.one_in(3)) one.scheme = random_scheme(random);
  one.layout = random.one_in(2) ? WeightLayout::out_in : WeightLayout::in_out;
  one.packed = one.scheme || random.one_in(2);
  one.bias = random.one_in(2);
  one.bias_dtype = random.one_in(2) ? one.out : random_dtype(random);
  one.gathered = traits_of(one.op).gathers_x() && random.one_in(2);
  if (traits_of(one.op).communicates()) {
    for (int i = 0; i < 3; ++i) one.plans.push_back(random_plan(random, one.op));
    if (has_schedule(one.op, Schedule::fused)) one.plans.emplace_back();
  }
  for (std::size_t i = 0; i < one.plans.size() + 1; ++i)
    one.threads.push_back(random.one_in(4) ? 2 : 1);
  one.delays = random.one_in(8);
  one.prepared = random.one_in(2);
  one.numbers = random_numbers(random);
  one.modes = random.one_in(2);
  one.two_groups = random.one_in(6);
  const bool may_be_nodes = traits_of(one.op).shares_k && can_have_nodes(world);
  if (random.one_in(40)) {
    make_deep(random, one);
  } else if (may_be_nodes && random.one_in(3)) {
    make_nodes(random, one, world);
  }
  if (random.one_in(8)) make_few(random, one);
  const std::int64_t depth = std::accumulate(one.k.begin(), one.k.end(), std::int64_t{1});
  if (random.one_in(2)) {
    one.spare =
        std::min(random_size(random, random.one_in(4) ? 1200 : 100), as_many_rows(1200, depth));
  }
  return one;
}

std::optional<Link> random_link(std::uint64_t seed, std::int64_t number) {
  Random random(seed ^ 0x11a4ULL, static_cast<std::uint64_t>(number));
  if (!random.one_in(3)) return std::nullopt;
  return Link{.bytes_per_second = random.of<double>({1e8, 1e9, 1e10}),
              .latency_ns = random.of<std::int64_t>({0, 1000, 20000, 200000})};
}

std::string show_shares(const std::vector<std::int64_t>& values) {
  const bool same = std::all_of(values.begin(), values.end(),
                                [&](std::int64_t value) { return value == values[0]; });
  std::string text;
  for (std::size_t i = 0; i < (same ? 1 : values.size()); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(values[i]);
  }
  return text;
}

std::string describe(const VerifyCase& one) {
  std::string text = base::sentence(
      name(one.op), " m=", one.m, " n=", show_shares(one.n), " k=", show_shares(one.k),
      " x=", name(one.x), " w=", one.scheme ? name(*one.scheme) : std::string(name(one.weight)),
      " out=", name(one.out), " wire=", name(one.wire), ' ', name(one.layout));
  if (one.packed) text += " packed";
  if (one.bias) text += base::sentence(" bias=", name(one.bias_dtype));
  if (one.gathered) text += " gathered";
  if (one.delays) text += " delays";
  if (one.prepared) text += " prepared";
  if (one.spare > 0) text += base::sentence(" spare=", one.spare);
  if (one.numbers != Numbers::usual) text += base::sentence(" numbers=", name(one.numbers));
  if (one.modes) text += " modes";
  if (one.two_groups) text += " two_groups";
  if (sums_over_ranks(one.op)) text += tree_of(one) ? " tree=k" : " tree=ranks";
  return text;
}

}  // namespace plait::verify
