#include "tensor/apart.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>

namespace plait::tensor {
namespace {

alignas(4) constexpr std::array<std::byte, 256> kMemory = {};

ConstTensorView view_at(std::int64_t place, std::int64_t rows, std::int64_t cols,
                        std::int64_t stride) {
  return {.data = kMemory.data() + place,
          .dtype = Dtype::s8,
          .rows = rows,
          .cols = cols,
          .row_stride = stride};
}

std::set<std::int64_t> places_of(std::int64_t place, std::int64_t rows, std::int64_t cols,
                                 std::int64_t stride) {
  std::set<std::int64_t> places;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; ++col) places.insert(place + row * stride + col);
  }
  return places;
}

bool have_none_in_common(const std::set<std::int64_t>& one, const std::set<std::int64_t>& other) {
  for (const std::int64_t place : one) {
    if (other.contains(place)) return false;
  }
  return true;
}

// Compares all small views with one of three rows of three in a stride of seven.
TEST(Apart, IsWhatHasNoByteInCommon) {
  const ConstTensorView one = view_at(40, 3, 3, 7);
  const std::set<std::int64_t> mine = places_of(40, 3, 3, 7);
  for (std::int64_t place = 10; place < 80; ++place) {
    for (std::int64_t rows = 0; rows <= 4; ++rows) {
      for (std::int64_t cols = 0; cols <= 4; ++cols) {
        const bool want = have_none_in_common(mine, places_of(place, rows, cols, 7));
        ASSERT_EQ(are_apart(one, view_at(place, rows, cols, 7)), want)
            << rows << " x " << cols << " at " << place;
        ASSERT_EQ(are_apart(view_at(place, rows, cols, 7), one), want)
            << rows << " x " << cols << " at " << place;
      }
    }
  }
}

TEST(Apart, IsNeverSaidOfWhatIsNot) {
  const ConstTensorView one = view_at(40, 3, 3, 7);
  const std::set<std::int64_t> mine = places_of(40, 3, 3, 7);
  for (std::int64_t place = 10; place < 80; ++place) {
    for (std::int64_t stride = 4; stride <= 9; ++stride) {
      if (are_apart(one, view_at(place, 3, 4, stride))) {
        ASSERT_TRUE(have_none_in_common(mine, places_of(place, 3, 4, stride)))
            << "stride " << stride << " at " << place;
      }
    }
  }
}

TEST(Apart, CountsInBytes) {
  const ConstTensorView wide = {
      .data = kMemory.data(), .dtype = Dtype::f32, .rows = 2, .cols = 4, .row_stride = 16};
  ConstTensorView narrow = {
      .data = kMemory.data() + 16, .dtype = Dtype::bf16, .rows = 2, .cols = 24, .row_stride = 32};
  EXPECT_TRUE(are_apart(wide, narrow));
  narrow.data = kMemory.data() + 14;
  narrow.cols = 1;
  EXPECT_FALSE(are_apart(wide, narrow));
}

}  // namespace
}  // namespace plait::tensor
