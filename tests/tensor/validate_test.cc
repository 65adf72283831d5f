#include "tensor/validate.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "tensor/sentence_of.h"

namespace plait::tensor {
namespace {

alignas(4) constexpr std::array<std::byte, 64> kMemory = {};
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::string refusal(const ConstTensorView& view) {
  return sentence_of([&] { validate(view, "test: x"); });
}

TEST(Validate, AcceptsWhatIsRight) {
  EXPECT_NO_THROW(validate(
      {.data = kMemory.data(), .dtype = Dtype::f32, .rows = 2, .cols = 3, .row_stride = 8}, "x"));
  EXPECT_NO_THROW(validate(
      {.data = kMemory.data(), .dtype = Dtype::f32, .rows = 1, .cols = 3, .row_stride = 0}, "x"));
}

TEST(Validate, AcceptsAnyDataWhereThereAreNoElements) {
  EXPECT_NO_THROW(validate({}, "x"));
  EXPECT_NO_THROW(validate({.rows = 7, .cols = 0, .row_stride = 0}, "x"));
  EXPECT_NO_THROW(validate({.data = kMemory.data() + 1, .rows = 0, .cols = 4}, "x"));
}

TEST(Validate, RefusesNegativeSizes) {
  EXPECT_EQ(refusal({.rows = -1, .cols = 4}), "test: x is -1 x 4: sizes must be 0 or more");
  EXPECT_EQ(refusal({.rows = 0, .cols = -2}), "test: x is 0 x -2: sizes must be 0 or more");
}

TEST(Validate, RefusesRowsThatOverlap) {
  EXPECT_EQ(
      refusal({.data = kMemory.data(), .dtype = Dtype::f32, .rows = 2, .cols = 8, .row_stride = 4}),
      "test: x has 8 columns but a row stride of 4");
  EXPECT_EQ(
      refusal(
          {.data = kMemory.data(), .dtype = Dtype::f32, .rows = 2, .cols = 1, .row_stride = -4}),
      "test: x has 1 columns but a row stride of -4");
}

TEST(Validate, RefusesNullData) {
  EXPECT_EQ(refusal({.dtype = Dtype::f32, .rows = 3, .cols = 4, .row_stride = 4}),
            "test: x is 3 x 4 but its data is null");
}

TEST(Validate, RefusesMisalignedData) {
  const auto said = refusal(
      {.data = kMemory.data() + 1, .dtype = Dtype::bf16, .rows = 1, .cols = 4, .row_stride = 4});
  EXPECT_EQ(said.find("test: x is bf16 but its data at 0x"), 0) << said;
  EXPECT_NE(said.find(" is not aligned to 2 bytes"), std::string::npos) << said;
  EXPECT_NO_THROW(validate(
      {.data = kMemory.data() + 1, .dtype = Dtype::s8, .rows = 1, .cols = 4, .row_stride = 4},
      "x"));
}

TEST(Validate, RefusesWhatNoAddressCanCount) {
  EXPECT_EQ(
      refusal(
          {.data = kMemory.data(), .dtype = Dtype::f32, .rows = kMost, .cols = 2, .row_stride = 2}),
      "test: x is 9223372036854775807 x 2 f32: more than memory can hold");
  EXPECT_EQ(
      refusal({.data = kMemory.data(),
               .dtype = Dtype::f32,
               .rows = 3,
               .cols = 2,
               .row_stride = kMost / 2}),
      "test: x has 3 rows with a stride of 4611686018427387903 f32: more than memory can hold");
}

TEST(Validate, RefusesUnknownDtypes) {
  EXPECT_EQ(refusal({.dtype = static_cast<Dtype>(9)}), "test: x has the unknown dtype 9");
}

TEST(Validate, RefusesElementsWithoutADtype) {
  EXPECT_EQ(refusal({.data = kMemory.data(), .rows = 2, .cols = 3}),
            "test: x is 2 x 3 and has no dtype");
  EXPECT_NO_THROW(validate({.rows = 0, .cols = 3}, "x"));
}

TEST(Validate, OnCpuRefusesOtherDevices) {
  const ConstTensorView view = {
      .data = kMemory.data(), .dtype = Dtype::f32, .rows = 1, .cols = 1, .device = Device::cuda(0)};
  EXPECT_NO_THROW(validate(view, "x"));
  EXPECT_EQ(sentence_of([&] { validate_on_cpu(view, "test: x"); }),
            "test: x is on cuda:0, which the CPU cannot read");
}

}  // namespace
}  // namespace plait::tensor
