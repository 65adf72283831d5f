#include "verify/heads_case.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace plait::verify {

std::int64_t HeadsCase::ids() const {
  return std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
}

HeadsCase random_heads_case(std::uint64_t seed, std::int64_t number, int world) {
  Random random(seed, static_cast<std::uint64_t>(number) * 64 + static_cast<std::uint64_t>(world));
  HeadsCase one;
  one.seed = seed * 1000003 + static_cast<std::uint64_t>(number);
  one.m = random_size(random, 40);
  one.k = random_size(random, random.one_in(6) ? 1500 : 130);
  // Equal shares have the gradients of one rank; others may be empty.
  const bool equal = random.one_in(2);
  const auto most = random.of<std::int64_t>({8, 90, 700, 2600});
  const std::int64_t share = random.between(1, most);
  for (int rank = 0; rank < world; ++rank)
    one.shares.push_back(equal ? share : random.below(most + 1));
  if (one.ids() == 0) one.shares.back() = 1;
  std::int64_t vocabulary = one.ids();
  if (random.one_in(3)) {
    vocabulary = random.between(1, vocabulary);
    one.options.vocabulary.vocab_size = vocabulary;
  }
  one.top =
      random.between(1, std::min<std::int64_t>(vocabulary, random.of<std::int64_t>({1, 9, 60})));
  const bool usual = random.one_in(2);
  one.x = usual ? Dtype::bf16 : random_dtype(random);
  one.weight = usual ? Dtype::bf16 : random_dtype(random);
  one.options.vocabulary.logits = random.one_in(2) ? Dtype::f32 : one.x;
  if (random.one_in(3)) one.options.label_smoothing = 0.1F;
  if (random.one_in(3)) one.options.z_loss = 1e-3F;
  if (random.one_in(5)) one.scheme = random_scheme(random);
  one.layout = random.one_in(2) ? WeightLayout::out_in : WeightLayout::in_out;
  one.packed = one.scheme || random.one_in(2);
  one.delays = random.one_in(8);
  one.modes = random.one_in(2);
  one.numbers = random.one_in(3) ? Numbers::wide : Numbers::usual;
  one.variants = {{.threads = 2}, {.threads = 1, .gives_first_id = true}};
  for (HeadsVariant& variant : one.variants)
    variant.plan = random_plan(random, Operator::matmul_reduce_scatter);
  return one;
}

std::string describe(const HeadsCase& one) {
  std::string text = base::sentence(
      "heads m=", one.m, " k=", one.k, " top=", one.top, " x=", name(one.x),
      " w=", one.scheme ? name(*one.scheme) : name(one.weight), one.packed ? "" : ":plain",
      " logits=", name(one.options.vocabulary.logits), " ",
      one.layout == WeightLayout::out_in ? "out_in" : "in_out",
      " vocab_size=", one.options.vocabulary.vocab_size, " smoothing=", one.options.label_smoothing,
      " z=", one.options.z_loss, one.delays ? " delays" : "", one.modes ? " modes" : "",
      " numbers=", name(one.numbers), " shares=");
  for (std::size_t rank = 0; rank < one.shares.size(); ++rank)
    text += base::sentence(rank > 0 ? "/" : "", one.shares[rank]);
  return text;
}

}  // namespace plait::verify
