#include "gpu/lt/lt.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "plait/error.h"

namespace plait::gpu {
namespace {

TEST(Lt, RefusesDtypesThatItIsNotUsedFor) {
  EXPECT_EQ(LtProduct::refusal({.m = 8, .n = 8, .k = 8, .in = Dtype::f32, .out = Dtype::f32}),
            "cuBLASLt is used for bf16 and f16 operands only");
  EXPECT_EQ(LtProduct::refusal({.m = 8, .n = 8, .k = 8, .in = Dtype::s8}),
            "cuBLASLt is used for bf16 and f16 operands only");
  EXPECT_EQ(LtProduct::refusal({.m = 8, .n = 8, .k = 8, .in = Dtype::bf16, .out = Dtype::f16}),
            "cuBLASLt writes f32 or the dtype of its operands only");
}

TEST(Lt, RefusesEmptyProducts) {
  EXPECT_EQ(LtProduct::refusal({.m = 8, .n = 0, .k = 8}),
            "cuBLASLt computes no product of m=8 n=0 k=8");
}

// The library is loaded once in a process, so the cases of its absence run in processes of their
// own.
void exit_with_refusal_of(const char* file) {
  ::setenv("PLAIT_CUBLASLT", file, 1);
  const auto refusal = LtProduct::refusal({.m = 8, .n = 8, .k = 8});
  std::fputs(refusal.value_or("none").c_str(), stderr);
  try {
    const LtProduct product({.m = 8, .n = 8, .k = 8});
  } catch (const Error& error) {
    std::_Exit(error.code() == Code::invalid_argument && *refusal == error.what() ? 0 : 1);
  }
  std::_Exit(2);
}

TEST(LtDeathTest, SaysWhichFileIsMissing) {
  EXPECT_EXIT(
      exit_with_refusal_of("/missing/libcublasLt.so"), testing::ExitedWithCode(0),
      "cuBLASLt does not load: /missing/libcublasLt.so: .*PLAIT_CUBLASLT can name its file");
}

TEST(LtDeathTest, SaysWhichFunctionIsMissing) {
  EXPECT_EXIT(exit_with_refusal_of("libc.so.6"), testing::ExitedWithCode(0),
              "libc.so.6 has no function cublasLtGetVersion");
}

}  // namespace
}  // namespace plait::gpu
