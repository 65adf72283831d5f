// A weight made ready for many products: in panels of 64 columns, padded, the elements of 16 bits
// in pairs of k.
//
//   const plait::PackedWeight packed({.view = w, .layout = WeightLayout::out_in});
//   gemm.run({.x = {x}, .weight = packed, .out = y});
//
// Any backend takes it. The elements are those of the view, unrounded.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plait/buffer.h"
#include "plait/export.h"
#include "plait/weight.h"

namespace plait {

class PLAIT_EXPORT PackedWeight {
 public:
  // f32, bf16 or f16. Copies the view, with as many threads as OpenMP would use, or with `threads`.
  explicit PackedWeight(const WeightView& weight, int threads = 0);

  Dtype dtype() const { return dtype_; }
  std::int64_t n() const { return n_; }
  std::int64_t k() const { return k_; }

  // Panel p, its columns 64·p and on; for backends.
  const std::byte* panel(std::int64_t p) const;

 private:
  Dtype dtype_;
  std::int64_t n_;
  std::int64_t k_;
  Buffer panels_;
};

}  // namespace plait
