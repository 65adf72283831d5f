// A layer of experts that are spread over the ranks. Each token goes to the ranks of its two
// experts, and the results come back. The checksum is the same on any number of ranks.
//
//   plait run -n 3 -- 09_experts      rows and checksum
//   09_experts                        one rank with all experts: the same checksum
#include <plait/plait.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr std::int64_t kTokens = 100, kHidden = 128, kInner = 64, kExperts = 10, kTop = 2;

// Noise that depends on the place alone, so every rank can make any expert's weight.
std::vector<float> noise(std::int64_t count, std::int64_t first, double scale) {
  std::vector<float> values(count);
  for (std::int64_t i = 0; i < count; ++i) {
    const double place = std::sin(static_cast<double>(first + i) * 12.9898) * 43758.5453;
    values[i] = static_cast<float>(scale * (2 * (place - std::floor(place)) - 1));
  }
  return values;
}

plait::PackedWeight weight(std::int64_t outputs, std::int64_t inputs, std::int64_t first) {
  const std::vector<float> values = noise(outputs * inputs, first, 0.2);
  return plait::PackedWeight({.view = plait::ConstTensorView::of(values.data(), outputs, inputs),
                              .layout = plait::WeightLayout::out_in});
}

}  // namespace

int main() try {
  plait::Communicator comm = plait::Communicator::connect();
  plait::ExpertParallelMLP layer({.hidden = kHidden,
                                  .inner = kInner,
                                  .experts = kExperts,
                                  .top = kTop,
                                  .dtype = plait::Dtype::f32,
                                  .out = plait::Dtype::f32,
                                  .weight = {.dtype = plait::Dtype::f32, .is_packed = true}},
                                 comm);

  std::vector<plait::PackedWeight> weights;
  for (const std::int64_t expert : layer.experts_of(comm.rank())) {
    weights.push_back(weight(2 * kInner, kHidden, 1000000 + expert * 50000));
    weights.push_back(weight(kHidden, kInner, 2000000 + expert * 50000));
  }
  std::vector<plait::Weight> up, down;
  for (std::size_t i = 0; i < weights.size(); i += 2) {
    up.emplace_back(weights[i]);
    down.emplace_back(weights[i + 1]);
  }

  // This rank's tokens. A router would choose their experts by their values.
  const plait::Shard own = plait::balanced_shard(kTokens, comm.rank(), comm.world());
  const auto first = static_cast<std::int64_t>(own.offset);
  const auto count = static_cast<std::int64_t>(own.count);
  const std::vector<float> x = noise(count * kHidden, first * kHidden, 1);
  std::vector<std::int64_t> ids;
  std::vector<float> shares;
  for (std::int64_t token = first; token < first + count; ++token) {
    ids.insert(ids.end(), {token * token % kExperts, (token + 3) % kExperts});
    shares.insert(shares.end(), {0.75F, 0.25F});
  }
  std::vector<float> out(x.size());
  layer.forward({.x = plait::ConstTensorView::of(x.data(), count, kHidden),
                 .ids = ids,
                 .weights = shares,
                 .up = up,
                 .down = down,
                 .out = plait::TensorView::of(out.data(), count, kHidden)});

  std::int64_t rows = 0;
  for (const std::int64_t of_rank : layer.rows().of_ranks) rows += of_rank;
  std::printf("rank %d of %d: %lld rows for %zu experts\n", comm.rank(), comm.world(),
              static_cast<long long>(rows), up.size());

  // All tokens' results, in order, as one number.
  std::vector<float> all(kTokens * kHidden);
  std::vector<std::size_t> counts;
  counts.reserve(static_cast<std::size_t>(comm.world()));
  for (int rank = 0; rank < comm.world(); ++rank)
    counts.push_back(plait::balanced_shard(kTokens, rank, comm.world()).count * kHidden);
  plait::all_gather({out.data(), out.size()}, {all.data(), all.size()}, comm, counts);
  std::uint64_t sum = 0;
  for (const float value : all) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    sum = sum * 1099511628211U + bits;
  }
  if (comm.rank() == 0) std::printf("checksum %016llx\n", static_cast<unsigned long long>(sum));
} catch (const plait::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
