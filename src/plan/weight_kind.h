// The kinds of weights in a PlanKey. "bf16" and "s8:group=128" were packed before the call.
// "bf16:plain" is packed again by every call, as weights in training are.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "plait/dtype.h"

namespace plait::plan {

inline constexpr std::string_view kPlain = "plain";

inline std::string plain_weight(Dtype dtype) {
  return std::string(name(dtype)) + ':' + std::string(kPlain);
}

// The dtype of a plain weight; nullopt for weights of other kinds.
inline std::optional<Dtype> plain_dtype(std::string_view weight) {
  const std::size_t colon = weight.rfind(':');
  if (colon == std::string_view::npos || weight.substr(colon + 1) != kPlain) return std::nullopt;
  const auto dtype = parse_dtype(weight.substr(0, colon));
  return dtype == Dtype::s8 ? std::nullopt : dtype;
}

}  // namespace plait::plan
