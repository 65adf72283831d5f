// Division that rounds up.
#pragma once

#include <type_traits>

namespace plait::base {

// 10 by 4 → 3
template <class Number>
constexpr Number ceil_div(Number value, std::type_identity_t<Number> unit) {
  return (value + unit - 1) / unit;
}

// 10 to a multiple of 4 → 12
template <class Number>
constexpr Number round_up(Number value, std::type_identity_t<Number> unit) {
  return ceil_div(value, unit) * unit;
}

}  // namespace plait::base
