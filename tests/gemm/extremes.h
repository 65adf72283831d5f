// Sums that are not rounded as others are.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "gemm/kernel.h"

namespace plait::gemm {

// Values for which rounding has rules of its own: beside 0 and beyond the largest number, ties, and
// all kinds of not a number, of which the roundings' carries would make infinities, or zeros.
inline std::vector<float> extremes() {
  std::vector<float> values;
  for (const std::uint32_t bits : {
           0x00000000U, 0x00000001U, 0x00008000U, 0x00008001U, 0x00018000U,
           0x007fffffU,  // denormal
           0x33000000U, 0x33000001U, 0x33400000U, 0x387fe000U, 0x387fffffU,
           0x38800000U,                                                      // in f16
           0x3f808000U, 0x3f818000U, 0x3f801000U, 0x3f803000U,               // ties
           0x477fe000U, 0x477fefffU, 0x477ff000U, 0x47800000U,               // the end of f16
           0x7f7f0000U, 0x7f7f7fffU, 0x7f7f8000U, 0x7f7fffffU,               // the end of bf16
           0x7f800000U,                                                      // infinity
           0x7f800001U, 0x7fc00000U, 0x7fc01234U, 0x7fff8000U, 0x7fffffffU,  // not a number
       }) {
    for (const std::uint32_t sign : {0U, 0x80000000U})
      values.push_back(std::bit_cast<float>(bits | sign));
  }
  values.resize(kPanelColumns, 1);
  return values;
}

}  // namespace plait::gemm
