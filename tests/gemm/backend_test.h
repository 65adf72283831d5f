// Helpers of the tests of every backend: the suite's parameter is a backend's name, or a kernel's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

#include "plait/gemm.h"

namespace plait {

inline bool backend_can(const std::string& backend, const GemmDesc& desc) {
  const auto walk = explain_gemm(desc);
  return std::any_of(walk.begin(), walk.end(), [&](const GemmChoice& choice) {
    return choice.backend == backend && choice.refusal.empty();
  });
}

// Why a kernel such as "amx bf16", or all of a backend, can't be had, in the backend's words.
inline std::string refusal_of(const std::string& kernel) {
  std::string refusal = kernel + " takes no such product";
  for (const GemmChoice& choice : explain_gemm({.m = 1, .n = 1, .k = 1})) {
    const std::string one = choice.backend + ' ' + std::string(name(choice.operand));
    if (one.starts_with(kernel) && !choice.refusal.empty()) refusal = choice.refusal;
  }
  return refusal;
}

inline auto all_backends() { return testing::Values("amx", "vector", "reference"); }

// A backend, and what its kernel multiplies.
inline auto all_kernels() {
  return testing::Values("amx bf16", "vector bf16", "vector f32", "reference f32");
}

// "vector_bf16"
inline std::string name_of(const testing::TestParamInfo<std::string>& one) {
  std::string name = one.param;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

class BackendTest : public testing::TestWithParam<std::string> {
 protected:
  explicit BackendTest(unsigned seed = 1) : random_(seed) {}

  static std::string backend() { return GetParam().substr(0, GetParam().find(' ')); }
  static Dtype dtype() { return GetParam().ends_with("bf16") ? Dtype::bf16 : Dtype::f32; }
  static bool can(const GemmDesc& desc) { return backend_can(backend(), desc); }
  static Gemm select(const GemmDesc& desc, int threads = 1) {
    return select_gemm(desc, {.backend = backend(), .threads = threads});
  }
  std::int64_t below(std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random_);
  }

 private:
  std::mt19937 random_;
};

}  // namespace plait
