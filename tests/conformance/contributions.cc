#include "conformance/contributions.h"

#include <random>

namespace plait::conformance {

std::vector<std::byte> contribution(int rank, std::size_t count, Dtype dtype, unsigned seed) {
  std::vector<float> values(count);
  std::minstd_rand random(static_cast<unsigned>(rank) * 7919 + seed + 1);
  for (float& value : values) value = static_cast<float>(random() % 2000) / 16.0F - 60.0F;
  std::vector<std::byte> bytes(count * size_of(dtype));
  convert(values.data(), Dtype::f32, bytes.data(), dtype, count);
  return bytes;
}

std::vector<std::byte> sum_of_all(int world, std::size_t count, Dtype dtype, Dtype out,
                                  unsigned seed) {
  const std::vector<float> sum = added_as_tree(world, [&](int rank) {
    std::vector<float> part(count);
    convert(contribution(rank, count, dtype, seed).data(), dtype, part.data(), Dtype::f32, count);
    return part;
  });
  std::vector<std::byte> bytes(count * size_of(out));
  convert(sum.data(), Dtype::f32, bytes.data(), out, count);
  return bytes;
}

}  // namespace plait::conformance
