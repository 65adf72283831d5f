#include "quant/format.h"

#include <gtest/gtest.h>

#include "tensor/sentence_of.h"

namespace plait::quant {
namespace {

TEST(Formats, AreFoundByTheirBits) {
  EXPECT_EQ(find_format(8), &kS8);
  EXPECT_EQ(find_format(4), &kS4);
  EXPECT_EQ(find_format(5), nullptr);
  EXPECT_EQ(&format_of(4), &kS4);
  EXPECT_EQ(sentence_of([] { format_of(0); }), "quantized weight: no format has 0 bits");
}

TEST(Formats, AreAllInTheTableOnce) {
  for (const Format* format : formats()) EXPECT_EQ(find_format(format->bits), format);
}

TEST(Formats, ReachOneFurtherBelowZero) {
  for (const Format* format : formats()) {
    EXPECT_EQ(format->steps() + 1, 1 << format->bits) << format->name;
    EXPECT_EQ(format->lowest, -format->highest - 1) << format->name;
  }
}

}  // namespace
}  // namespace plait::quant
