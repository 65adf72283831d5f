// The meaning of a scheme for a weight of a given size, and checks of schemes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "plait/quantized.h"

namespace plait::quant {

// Refuses bits that no format has, and a wrong group size. `who` starts the sentence.
void check_scheme(const QuantScheme& scheme, std::string_view who);

void check_layout(WeightLayout layout, std::string_view who);

// The number of consecutive k that share a scale: at least 1, and more than k if k is small.
std::int64_t group_size(const QuantScheme& scheme, std::int64_t k);

std::int64_t group_count(const QuantScheme& scheme, std::int64_t k);

// Calls body(group, from, to) for the part of [begin, end) in each group of `size` k.
// size 4, [3, 9) → (0, 3, 4), (1, 4, 8), (2, 8, 9)
template <class Body>
void for_each_group(std::int64_t size, std::int64_t begin, std::int64_t end, const Body& body) {
  std::int64_t group = begin / size;
  for (std::int64_t from = begin; from < end; ++group) {
    const std::int64_t left = size - (from - group * size);
    const std::int64_t to = left < end - from ? from + left : end;
    body(group, from, to);
    from = to;
  }
}

}  // namespace plait::quant
