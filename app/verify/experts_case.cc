#include "verify/experts_case.h"

#include <algorithm>

#include "base/check.h"

namespace plait::verify {
namespace {

// At least one, which a layer needs of everything but rows.
std::int64_t some(Random& random, std::int64_t most) {
  return std::max<std::int64_t>(1, random_size(random, most));
}

ExpertsDesc random_desc(Random& random, int world) {
  ExpertsDesc desc = {.hidden = some(random, 150),
                      .inner = some(random, 100),
                      .experts = random.between(1, 12),
                      .top = random.between(1, 4)};
  if (random.one_in(2)) desc.dtype = random_dtype(random);
  desc.out = random.one_in(2) ? desc.dtype : random_dtype(random);
  desc.wire = random_dtype(random);
  desc.weight.dtype = random.one_in(2) ? desc.dtype : random_dtype(random);
  if (random.one_in(4)) desc.weight.scheme = random_scheme(random);
  desc.weight.is_packed = desc.weight.scheme || random.one_in(2);
  desc.activation = random.of<ExpertActivation>(
      {ExpertActivation::swiglu, ExpertActivation::swiglu_interleaved, ExpertActivation::silu});
  if (random.one_in(2)) {
    desc.alpha = 1.702F;
    desc.limit = 1.5F;
    desc.added = 1.0F;
  }
  if (random.one_in(3)) desc.weights_at = ExpertWeightsAt::activation;
  if (random.one_in(4)) desc.parts = random.between(2, 4);
  if (random.one_in(3)) {
    for (std::int64_t i = 0; i < desc.experts * desc.parts; ++i)
      desc.ranks.push_back(static_cast<int>(random.below(world)));
  }
  return desc;
}

}  // namespace

ExpertsCase random_experts_case(std::uint64_t seed, std::int64_t number, int world) {
  Random random(seed, static_cast<std::uint64_t>(number) * 64 + static_cast<std::uint64_t>(world));
  ExpertsCase one;
  one.seed = seed * 1000003 + static_cast<std::uint64_t>(number);
  one.desc = random_desc(random, world);
  one.replicated = random.one_in(4);
  one.gradients = !one.replicated && random.one_in(2);
  // Enough for products of one rank's rows, and for results that leave before others are made.
  const std::int64_t most = random.one_in(4) ? 500 : 60;
  for (int rank = 0; rank < world; ++rank)
    one.rows.push_back(random.one_in(6) ? 0 : random_size(random, most));
  if (one.replicated) one.rows.assign(1, one.rows[0]);
  one.biases = random.one_in(2);
  one.layout = random.one_in(2) ? WeightLayout::out_in : WeightLayout::in_out;
  one.skewed = random.one_in(3);
  one.delays = random.one_in(8);
  one.modes = random.one_in(2);
  one.numbers = random_numbers(random);
  for (const Schedule schedule : {Schedule::serial, Schedule::fused, Schedule::fused})
    one.variants.push_back({.schedule = schedule, .threads = random.one_in(3) ? 2 : 1});
  return one;
}

std::string describe(const ExpertsCase& one) {
  const ExpertsDesc& desc = one.desc;
  std::string text = base::sentence(
      "expert_parallel_mlp hidden=", desc.hidden, " inner=", desc.inner, " experts=", desc.experts,
      " top=", desc.top, " parts=", desc.parts, " x=", name(desc.dtype), " w=", name(desc.weight),
      " out=", name(desc.out), " wire=", name(desc.wire), " ", name(desc.activation), " ",
      name(desc.weights_at), one.layout == WeightLayout::out_in ? " out_in" : " in_out",
      one.biases ? " biases" : "", one.gradients ? " gradients" : "",
      one.replicated ? " replicated" : "", one.skewed ? " skewed" : "", one.delays ? " delays" : "",
      one.modes ? " modes" : "", " numbers=", name(one.numbers), " rows=");
  for (std::size_t rank = 0; rank < one.rows.size(); ++rank)
    text += base::sentence(rank > 0 ? "/" : "", one.rows[rank]);
  for (std::size_t expert = 0; expert < desc.ranks.size(); ++expert)
    text += base::sentence(expert > 0 ? "," : " ranks=", desc.ranks[expert]);
  return text;
}

}  // namespace plait::verify
