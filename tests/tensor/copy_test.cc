#include "tensor/copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace plait::tensor {
namespace {

using Copy = void (*)(void* to, const void* from, std::size_t bytes);

// Copies every byte and no other, from and to every position in a cache line.
void expect_copies(Copy copy) {
  constexpr std::byte kUntouched{0x5a};
  std::vector<std::byte> from(4096);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = std::byte(i * 7 % 251);
  for (const std::size_t bytes : {0, 1, 15, 63, 64, 65, 127, 200, 1500, 3000}) {
    for (std::size_t shift = 0; shift < 64; shift += 3) {
      std::vector<std::byte> to(bytes + shift + 64, kUntouched);
      copy(to.data() + shift, from.data() + 63 - shift, bytes);
      stream_fence();
      std::vector<std::byte> expected(shift, kUntouched);
      const auto begin = from.begin() + 63 - static_cast<std::ptrdiff_t>(shift);
      expected.insert(expected.end(), begin, begin + static_cast<std::ptrdiff_t>(bytes));
      expected.resize(to.size(), kUntouched);
      ASSERT_EQ(to, expected) << bytes << " bytes to place " << shift;
    }
  }
}

TEST(Copy, AheadBringsEveryByteAndNoneBesides) { expect_copies(copy_ahead); }

TEST(Copy, StreamedBringsEveryByteAndNoneBesides) { expect_copies(stream_copy); }

TEST(Copy, ReadsNothingBeyondItsSource) {
  // The vectors have the exact size, so that the address sanitizer notices one byte too many.
  const std::vector<std::byte> from(1000, std::byte{3});
  std::vector<std::byte> to(from.size());
  copy_ahead(to.data(), from.data(), from.size());
  EXPECT_EQ(to, from);
  std::vector<std::byte> streamed(from.size());
  stream_copy(streamed.data(), from.data(), from.size());
  EXPECT_EQ(streamed, from);
}

}  // namespace
}  // namespace plait::tensor
