// The weights of the benchmark: a square one, and a rank's share of the linear layers of models
// that are sharded over 8 ranks.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace plait::bench {

struct GemmShape {
  std::string_view name;
  std::int64_t n;
  std::int64_t k;
};

std::span<const GemmShape> gemm_shapes();

// Throws std::invalid_argument, with the known names.
const GemmShape& find_shape(const std::string& name);

inline constexpr std::array<std::int64_t, 9> kRows = {1, 4, 16, 64, 128, 256, 512, 1024, 2048};

}  // namespace plait::bench
