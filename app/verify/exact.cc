#include "verify/exact.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace plait::verify {
namespace {

double largest(Dtype dtype) { return dtype == Dtype::f16 ? 65504 : 0x1.fep127; }

}  // namespace

std::string Exact::what_is_wrong_with(double got, const tensor::Roundings& way) const {
  if (std::isnan(value_)) {
    return std::isnan(got) ? "" : base::sentence("is ", got, " but the sum is not a number");
  }
  const double allowed =
      tensor::tolerance(way, magnitude_) + flushed_ * double{std::numeric_limits<float>::min()};
  if (!(std::max(magnitude_, way.group) + allowed < std::min(largest(way.wire), largest(way.out))))
    return "";
  if (std::abs(got - value_) <= allowed) return "";
  return base::sentence("is ", got, " but the sum is ", value_, " and the tolerance is ", allowed);
}

}  // namespace plait::verify
