// Experts that are cut in parts: the bits of whole experts where the parts are nodes of a sum, and
// those of one rank with all parts elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "experts/batch.h"

namespace plait {
namespace {

const std::vector<ExpertsOptions> kWaysOfParts = {
    {.schedule = Schedule::serial, .threads = 1},
    {.schedule = Schedule::fused, .threads = 1},
    {.schedule = Schedule::fused, .replicated = true, .threads = 1}};

ExpertsDesc cut(ExpertsDesc desc, std::int64_t parts) {
  desc.inner /= parts;
  desc.parts = parts;
  return desc;
}

void expect_bits_in_threads(const Experts& experts, const Batch& batch,
                            const std::vector<std::byte>& wanted) {
  run_in_threads(static_cast<int>(batch.rows_of_ranks.size()), [&](Communicator& comm) {
    for (const ExpertsOptions& options : kWaysOfParts)
      expect_bits(comm, experts, batch, options, wanted);
  });
}

TEST(PartsOfExperts, GiveTheBitsOfWholeOnesWhereTheyAreNodes) {
  for (const auto activation :
       {ExpertActivation::swiglu, ExpertActivation::swiglu_interleaved, ExpertActivation::silu}) {
    for (const char* scheme : {"", "packed", "s8:group=32"}) {
      const ExpertsDesc desc = {.hidden = 32,
                                .inner = 1024,
                                .experts = 3,
                                .top = 2,
                                .out = Dtype::f32,
                                .activation = activation,
                                .weights_at = activation == ExpertActivation::silu
                                                  ? ExpertWeightsAt::activation
                                                  : ExpertWeightsAt::combine};
      const Batch batch(desc, {5, 0, 7, 2});
      const std::vector<std::byte> wanted = by_one_rank({desc, Dtype::bf16, scheme, false}, batch);
      expect_bits_in_threads({cut(desc, 2), Dtype::bf16, scheme, false}, batch, wanted);
    }
  }
}

TEST(PartsOfExperts, MayBeFourAndOnAnyRank) {
  ExpertsDesc desc = {.hidden = 32, .inner = 2048, .experts = 2, .top = 2};
  const Batch batch(desc, {5, 0, 7});
  const std::vector<std::byte> wanted = by_one_rank({desc, Dtype::bf16, "", false}, batch);
  desc = cut(desc, 4);
  expect_bits_in_threads({desc, Dtype::bf16, "", false}, batch, wanted);
  desc.ranks = {2, 0, 0, 2, 1, 2, 1, 1};
  expect_bits_in_threads({desc, Dtype::bf16, "", false}, batch, wanted);
}

// Three parts are never nodes, and sums that are rounded to a narrow wire are none.
TEST(PartsOfExperts, GiveTheBitsOfOneRankWithAllParts) {
  for (const std::int64_t parts : {2, 3}) {
    ExpertsDesc desc = cut({.hidden = 96, .inner = 60, .experts = 5, .top = 3}, parts);
    if (parts == 2) desc.wire = Dtype::bf16;
    const Experts experts(desc, Dtype::bf16, "", true);
    const Batch batch(desc, {30, 0, 1, 200});
    expect_bits_in_threads(experts, batch, by_one_rank(experts, batch));
  }
}

// Without x and inner features a result is the bias, once.
TEST(PartsOfExperts, HaveOneBiasOfDown) {
  const ExpertsDesc desc = {.hidden = 40, .inner = 24, .experts = 4, .top = 3};
  Batch batch(desc, {9, 4});
  std::fill(batch.x.data.begin(), batch.x.data.end(), std::byte{0});
  const auto of = [&](const ExpertsDesc& its) {
    Experts experts(its, Dtype::bf16, "", true);
    for (Values& bias : experts.up_biases)
      std::fill(bias.data.begin(), bias.data.end(), std::byte{0});
    return experts;
  };
  const std::vector<std::byte> wanted = by_one_rank(of(desc), batch);
  expect_bits_in_threads(of(cut(desc, 3)), batch, wanted);
}

}  // namespace
}  // namespace plait
