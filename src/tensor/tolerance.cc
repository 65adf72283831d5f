#include "tensor/tolerance.h"

#include <limits>

namespace plait::tensor {

double smallest_roundoff(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return 0x1p-150;
    case Dtype::bf16:
      return 0x1p-134;
    case Dtype::f16:
      return 0x1p-25;
    case Dtype::s8:
      break;
  }
  return 0.5;
}

double gamma(std::int64_t n, double u) {
  const double nu = static_cast<double>(n) * u;
  return nu < 1 ? nu / (1 - nu) : std::numeric_limits<double>::infinity();
}

// Consider one product a·b on its way into y. It is rounded once as a product, then once by each
// addition that follows: at most `terms - 1` in its partial sum. The partial sum is rounded to
// `wire`, which multiplies all products in it by the same (1 + d), |d| <= u(wire). At most `world`
// additions combine the partial sums and the bias, and one rounding makes `out`. Therefore the
// product arrives multiplied by
//
//   (1 + d_1)···(1 + d_{terms + world}) · (1 + d_wire) · (1 + d_out),
//
// which differs from 1 by at most (1 + gamma_{terms + world})(1 + u(wire))(1 + u(out)) - 1 =: b.
// The sum over all products is off by at most b · Σ|a||b|. u(wire) counts once, not `world` times,
// because every product travels once, in its own rank's partial sum. The reference's rounding to
// f32 adds one (1 + u(f32)).
//
// Rounding near 0 has a fixed error instead: half of the smallest distance, once for each product,
// for each partial sum on the wire, and for `out`. These errors are multiplied by factors below 1 +
// b on their way.
//
// An s8 wire rounds with a fixed error too: 1/252 of the largest partial sum of the element's
// group, or 2^-126. That sum is at most 1 + b times the largest Σ|a||b|.
double tolerance(const Roundings& way, double magnitude) {
  const double u = unit_roundoff(Dtype::f32);
  const double factor = (1 + gamma(way.terms + way.world, u)) * (1 + unit_roundoff(way.wire)) *
                        (1 + unit_roundoff(way.out)) * (1 + u);
  const double world = way.world;
  const double products = static_cast<double>(way.terms) * world * smallest_roundoff(Dtype::f32);
  const double wire = way.wire == Dtype::s8 ? factor * way.group / 252 + world * 0x1p-126
                                            : world * smallest_roundoff(way.wire);
  const double near_zero = products + wire + smallest_roundoff(way.out);
  return (factor - 1) * magnitude + factor * near_zero;
}

}  // namespace plait::tensor
