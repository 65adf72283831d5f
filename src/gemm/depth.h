// How k is cut: into the groups that share a scale, each padded to whole steps of the kernels.
//
// k = 300 in groups of 128: 128 + 128 + 44, padded to 128 + 128 + 64. In groups of 100: 100 + 100 +
// 100, padded to 3 x 128. Without groups there is one, of all k.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/round_up.h"
#include "gemm/kernel.h"

namespace plait::gemm {

using base::ceil_div;
using base::round_up;

struct Depth {
  std::int64_t k = 0;
  std::int64_t group = 0;  // 0: all k are one group

  std::int64_t group_size() const { return group == 0 ? k : std::min(group, k); }
  std::int64_t groups() const { return k == 0 ? 0 : ceil_div(k, group_size()); }

  std::int64_t group_of(std::int64_t at) const { return at / group_size(); }

  std::int64_t begin(std::int64_t g) const { return g * group_size(); }
  std::int64_t length(std::int64_t g) const { return std::min(group_size(), k - begin(g)); }

  std::int64_t padded_begin(std::int64_t g) const { return g * round_up(group_size(), kKStep); }
  std::int64_t padded_length(std::int64_t g) const { return round_up(length(g), kKStep); }

  std::int64_t padded() const {
    return k == 0 ? 0 : padded_begin(groups() - 1) + padded_length(groups() - 1);
  }

  // True if padding puts nothing between the elements, nor after them.
  bool is_unpadded() const { return padded() == k; }

  bool operator==(const Depth&) const = default;
};

}  // namespace plait::gemm
