// Weights of 8 or 4 bits, with the scales that turn them back into numbers.
//
//   plait::QuantizedWeight q = plait::quantize({view, WeightLayout::out_in},
//                                              {.bits = 8, .per = QuantPer::group, .group = 128});
//   // w[j, k] = (value + offset) · scale, scale and offset those of column j and of k's group
//
// Values are whole numbers: -128..127 with 8 bits, -8..7 with 4. Offsets, if the scheme has them,
// are whole numbers of the same range, so value + offset is exact even in bf16. Scales are f32.
// docs/concepts/quantised-values.md says what is rounded, and by how much.
//
// `threads` is the number of threads that share the work; it affects only the time. 0: as many as
// OpenMP would use.
#pragma once

#include <cstdint>

#include "plait/buffer.h"
#include "plait/export.h"
#include "plait/quant_scheme.h"
#include "plait/tensor_view.h"
#include "plait/weight.h"

namespace plait {

// A weight that another program has quantised, as views of its parts.
struct QuantizedParts {
  // s8, in `layout`: [n, k] with out_in, [k, n] with in_out. With 4 bits, two values a byte, of
  // which the first along the row is in the low half: [n, ceil(k / 2)] or [k, ceil(n / 2)]. The
  // unused half at the end of an odd row may hold anything.
  ConstTensorView values;
  WeightLayout layout;
  // f32, bf16 or f16: [1, 1] per tensor, [1, n] per channel, [ceil(k / group), n] per group. Any
  // finite numbers, 0 and negative ones too.
  ConstTensorView scales;
  // s8, of the shape of scales; no data: none.
  ConstTensorView offsets = {};
};

class PLAIT_EXPORT QuantizedWeight {
 public:
  // Copies the parts. Error{invalid_argument} names the part that does not fit: a shape, a dtype,
  // an offset outside the range of 4 bits, a scale that is not finite.
  static QuantizedWeight from_parts(const QuantScheme& scheme, std::int64_t n, std::int64_t k,
                                    const QuantizedParts& parts, int threads = 0);

  const QuantScheme& scheme() const { return scheme_; }
  std::int64_t n() const { return n_; }
  std::int64_t k() const { return k_; }

  // 1 per tensor and per channel, ceil(k / group) per group.
  std::int64_t groups() const;

  // Single values, for tests and tools; products read whole panels. Error{invalid_argument} outside
  // the weight.
  int value(std::int64_t column, std::int64_t k) const;
  int offset(std::int64_t column, std::int64_t k) const;  // 0 if the scheme has none
  float scale(std::int64_t column, std::int64_t k) const;

  // Values as s8 [n, k], or with 4 bits [n, ceil(k / 2)] with the even k in the low half; the
  // unused half of an odd k is 0.
  ConstTensorView values() const;
  ConstTensorView scales() const;   // f32 [groups, n]: per tensor, the one scale n times
  ConstTensorView offsets() const;  // s8 [groups, n]; no data if the scheme has none

  // (value + offset) · scale of every weight, multiplied in f32 and then converted to out's dtype
  // (f32, bf16 or f16); out is [n, k] with out_in, [k, n] with in_out.
  void dequantize(const TensorView& out, WeightLayout layout, int threads = 0) const;

 private:
  QuantScheme scheme_;
  std::int64_t n_ = 0;
  std::int64_t k_ = 0;
  Buffer values_;
  Buffer scales_;
  Buffer offsets_;

  void allocate();  // the buffers that scheme_, n_ and k_ need
  void check_not_moved() const;
  void check_inside(std::int64_t column, std::int64_t k) const;
  std::size_t part_of(std::int64_t column, std::int64_t k) const;

  friend PLAIT_EXPORT QuantizedWeight quantize(const WeightView& weight, const QuantScheme& scheme,
                                               int threads);
};

// Rounds every weight to the nearest value, ties to even. The scale is the largest magnitude among
// the weights that share it, divided by 127 or 7. With offsets it is their range, widened to
// contain 0, divided by 255 or 15. In both cases 0 stays 0, and weights that are all 0 have the
// scale 0. Error{invalid_argument} for weights that are not finite.
PLAIT_EXPORT QuantizedWeight quantize(const WeightView& weight, const QuantScheme& scheme,
                                      int threads = 0);

}  // namespace plait
