#include "plait/weight.h"

#include "base/check.h"
#include "plait/packed_weight.h"

namespace plait {

std::string name(const WeightKind& kind) {
  if (kind.scheme) return name(*kind.scheme);
  return std::string(name(kind.dtype)) + (kind.is_packed ? "" : ":plain");
}

std::int64_t Weight::n() const { return is_packed() ? packed_->n() : view_.n(); }
std::int64_t Weight::k() const { return is_packed() ? packed_->k() : view_.k(); }
Dtype Weight::dtype() const { return is_packed() ? packed_->dtype() : view_.view.dtype; }

std::optional<QuantScheme> Weight::scheme() const {
  return is_packed() ? packed_->scheme() : std::nullopt;
}

WeightKind Weight::kind() const {
  return {.dtype = dtype(), .scheme = scheme(), .is_packed = is_packed()};
}

const WeightView& Weight::view() const {
  PLAIT_CHECK(!is_packed(), "weight: a packed one of n=", n(), " k=", k(),
              " has no view: its elements lie in panels");
  return view_;
}

const PackedWeight& Weight::packed() const {
  PLAIT_CHECK(is_packed(), "weight: a plain one of n=", n(), " k=", k(), " is not packed");
  return *packed_;
}

}  // namespace plait
