#include "base/fingerprint.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string_view>
#include <vector>

namespace plait::base {
namespace {

TEST(Fingerprint, IsFnv1a) {
  EXPECT_EQ(fingerprint(std::string_view("")), 0xcbf29ce484222325U);
  EXPECT_EQ(fingerprint(std::string_view("foobar")), 0x85944171f73967e8U);
}

// A char may be negative, a byte is not.
TEST(Fingerprint, TakesBytesOfAnyType) {
  const std::vector<std::byte> bytes = {std::byte{0xFF}, std::byte{0x80}};
  EXPECT_EQ(fingerprint(std::string_view("\xFF\x80")), fingerprint(bytes));
}

TEST(Fingerprint, TakesNumbersAsAWhole) {
  const std::vector<std::size_t> large = {std::size_t{1} << 40};
  const std::vector<std::size_t> other = {std::size_t{1} << 41};
  EXPECT_NE(fingerprint(large), fingerprint(other));
}

}  // namespace
}  // namespace plait::base
