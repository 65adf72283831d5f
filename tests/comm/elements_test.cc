#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>
#include <vector>

#include "plait/collectives.h"

namespace plait {
namespace {

// Elements of an unknown type, or of a type that is no dtype, do not compile.
static_assert(!std::is_constructible_v<Elements, void*, std::size_t>);
static_assert(!std::is_constructible_v<Elements, void*, std::size_t, Device>);
static_assert(!std::is_constructible_v<Elements, double*, std::size_t>);
static_assert(!std::is_constructible_v<Elements, const float*, std::size_t>);
static_assert(!std::is_constructible_v<ConstElements, const void*, std::size_t>);
static_assert(!std::is_constructible_v<ConstElements, const std::uint8_t*, std::size_t>);

template <class T>
class ElementsOf : public testing::Test {};
using Types = testing::Types<float, Bf16, F16, std::int8_t>;
TYPED_TEST_SUITE(ElementsOf, Types);

TYPED_TEST(ElementsOf, AreOfTheTypeThatIsPointedTo) {
  std::vector<TypeParam> some(10);
  const std::vector<TypeParam>& constant = some;
  const Elements out = {some.data(), some.size()};
  EXPECT_EQ(out.dtype, kDtypeOf<TypeParam>);
  EXPECT_EQ(ConstElements(some.data(), 10).dtype, kDtypeOf<TypeParam>);
  const ConstElements in = {constant.data(), constant.size(), Device::cuda(1)};
  EXPECT_EQ(in.dtype, kDtypeOf<TypeParam>);
  EXPECT_EQ(in.device, Device::cuda(1));
  EXPECT_EQ(ConstElements(out).dtype, kDtypeOf<TypeParam>);
}

TEST(ElementsOfAnyMemory, AreOfTheTypeThatIsSaid) {
  std::vector<std::byte> memory(20);
  const Elements halves = {memory.data(), 10, Dtype::bf16};
  EXPECT_EQ(halves.dtype, Dtype::bf16);
  EXPECT_EQ(ConstElements(nullptr, 0, Dtype::s8).dtype, Dtype::s8);
}

// Half precision is summed as such: read as f32 it would be twice the memory.
TEST(ElementsOfAnyMemory, AreSummedAsWhatTheyAre) {
  run_in_threads(2, [](Communicator& comm) {
    std::vector<Bf16> values(1000, Bf16(1.5F));
    all_reduce({values.data(), values.size()}, comm);
    for (const Bf16 value : values) ASSERT_EQ(static_cast<float>(value), 3.0F);
  });
}

}  // namespace
}  // namespace plait
