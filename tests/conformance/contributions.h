// Inputs and expected results of collectives, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "plait/dtype.h"
#include "tensor/in_pairs.h"

namespace plait::conformance {

// The input of `rank`. Every rank can make the inputs of all others, and so knows the exact result.
std::vector<std::byte> contribution(int rank, std::size_t count, Dtype dtype, unsigned seed = 0);

// Adds the parts of all ranks.
template <class Part>
std::vector<float> added_as_tree(int world, const Part& part_of) {
  std::vector<std::vector<float>> parts;
  parts.reserve(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) parts.push_back(part_of(rank));
  return tensor::added_in_pairs(std::move(parts));
}

// The contract: f32 sums as a tree over ranks, rounded once to `out`.
std::vector<std::byte> sum_of_all(int world, std::size_t count, Dtype dtype, Dtype out,
                                  unsigned seed);

inline std::vector<std::byte> sum_of_all(int world, std::size_t count, Dtype dtype,
                                         unsigned seed = 0) {
  return sum_of_all(world, count, dtype, dtype, seed);
}

inline std::vector<std::byte> slice(const std::vector<std::byte>& bytes, std::size_t offset,
                                    std::size_t count, Dtype dtype) {
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(offset * size_of(dtype));
  return {begin, begin + static_cast<std::ptrdiff_t>(count * size_of(dtype))};
}

inline constexpr std::size_t kSizes[] = {0,    1,     7,
                                         1000, 16384, 100003};  // none, few, one chunk, many

// Output memory with guards around it, filled with 0x5A.
class Guarded {
 public:
  Guarded(std::size_t count, Dtype dtype) : bytes_(count * size_of(dtype) + 128, std::byte{0x5A}) {}
  void* data() { return bytes_.data() + 64; }
  std::vector<std::byte> contents() const { return {bytes_.begin() + 64, bytes_.end() - 64}; }
  ~Guarded() {
    for (std::size_t i = 0; i < 64; ++i) {
      EXPECT_EQ(bytes_[i], std::byte{0x5A});
      EXPECT_EQ(bytes_[bytes_.size() - 1 - i], std::byte{0x5A});
    }
  }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace plait::conformance
