#include "base/default_floats.h"

#include <gtest/gtest.h>

#include "tensor/float_modes.h"

namespace plait::base {
namespace {

// Results that depend on the thread's mode; volatile, so that the compiler does not compute them.
struct Observed {
  float third;
  float minus_third;
  float denormal;

  bool operator==(const Observed&) const = default;
};

Observed observe() {
  const volatile float one = 1;
  const volatile float three = 3;
  const volatile float tiny = 0x1p-126F;
  return {one / three, -one / three, tiny / three};
}

TEST(DefaultFloats, HoldWhateverTheThreadHasSetAndGiveItBack) {
  const Observed usual = observe();
  for (const FloatMode& mode : float_modes()) {
    mode.enter();
    const Observed before = observe();
    Observed inside = {};
    {
      const DefaultFloats floats;
      inside = observe();
    }
    const Observed after = observe();
    mode.leave();
    EXPECT_NE(before, usual) << mode.name;
    EXPECT_EQ(inside, usual) << mode.name;
    EXPECT_EQ(after, before) << mode.name;
  }
}

TEST(DefaultFloats, KeepTheExceptionFlags) {
  std::feclearexcept(FE_ALL_EXCEPT);
  std::feraiseexcept(FE_INEXACT);
  {
    const DefaultFloats floats;
    std::feraiseexcept(FE_DIVBYZERO);
  }
  EXPECT_EQ(std::fetestexcept(FE_INEXACT | FE_DIVBYZERO), FE_INEXACT);
  std::feclearexcept(FE_ALL_EXCEPT);
}

}  // namespace
}  // namespace plait::base
