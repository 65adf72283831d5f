// A weight packed for many products: in panels of 64 columns, padded, with elements of 16 bits and
// less in pairs of k.
//
//   plait::PackedWeight packed({.view = w, .layout = WeightLayout::out_in});
//   gemm.run({.x = {x}, .weight = packed, .out = y});
//   packed.repack({.view = w, .layout = WeightLayout::out_in});  // the values have changed
//
//   const plait::PackedWeight small(plait::quantize(view, *plait::parse_quant_scheme("s8")));
//
// Any backend accepts it. Packing does not round: the elements are those of the view, and values,
// offsets and scales are those of the quantised weight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "plait/buffer.h"
#include "plait/export.h"
#include "plait/quantized.h"
#include "plait/weight.h"

namespace plait {

class PLAIT_EXPORT PackedWeight {
 public:
  // f32, bf16 or f16. Copies the view, with as many threads as OpenMP would use, or with `threads`.
  explicit PackedWeight(const WeightView& weight, int threads = 0);

  // Copies the weight, which may be destroyed afterwards.
  explicit PackedWeight(const QuantizedWeight& weight, int threads = 0);

  // Packs a weight that has changed, as after a training step, into the existing memory. The result
  // is the same as that of constructing it again. No product may read it meanwhile.
  // Error{invalid_argument} for another n, k, dtype or scheme; a view may have another layout than
  // before.
  void repack(const WeightView& weight, int threads = 0);
  void repack(const QuantizedWeight& weight, int threads = 0);

  Dtype dtype() const { return dtype_; }  // s8 if it is quantised, with 4 bits too
  const std::optional<QuantScheme>& scheme() const { return scheme_; }  // nothing: not quantised
  std::int64_t n() const { return n_; }
  std::int64_t k() const { return k_; }

  // The bytes that a product reads.
  std::size_t bytes() const { return panels_.bytes() + scales_.bytes() + offsets_.bytes(); }

  // Panel p, its columns 64·p and on; for backends.
  const std::byte* panel(std::int64_t p) const;

  // The scales and offsets of the panel's 64 columns in group g, which is 0 if the scheme has no
  // groups; those of the next group follow. Beyond the last column of the weight they are 0.
  // nullptr: the scheme has no offsets.
  const float* scales(std::int64_t g, std::int64_t p) const;
  const std::int8_t* offsets(std::int64_t g, std::int64_t p) const;

 private:
  Dtype dtype_;
  std::optional<QuantScheme> scheme_;
  std::int64_t n_;
  std::int64_t k_;
  std::int64_t groups_ = 1;  // of scales and offsets
  std::size_t panel_bytes_;
  Buffer panels_;
  Buffer scales_;
  Buffer offsets_;

  void pack(const WeightView& weight, int threads);
  void pack(const QuantizedWeight& weight, int threads);
  void check_same(Dtype dtype, const std::optional<QuantScheme>& scheme, std::int64_t n,
                  std::int64_t k) const;
};

}  // namespace plait
