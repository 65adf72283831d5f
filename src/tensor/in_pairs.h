// The tree in which leaves and partial sums are added, for comparisons with what kernels make.
#pragma once

#include <cstddef>
#include <vector>

namespace plait::tensor {

// Adds neighbours in pairs, level by level, until the first part is the whole sum. A part that is
// left over goes up a level unchanged. `add` is called with a part and what is added to it.
// 5 parts → ((0 + 1) + (2 + 3)) + 4
template <class Part, class Add>
void add_in_pairs(std::vector<Part>& parts, const Add& add) {
  for (std::size_t step = 1; step < parts.size(); step *= 2) {
    for (std::size_t i = 0; i + step < parts.size(); i += 2 * step) add(parts[i], parts[i + step]);
  }
}

// Parts that are vectors of sums.
inline std::vector<float> added_in_pairs(std::vector<std::vector<float>> parts) {
  add_in_pairs(parts, [](std::vector<float>& sum, const std::vector<float>& more) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  });
  return parts.front();
}

}  // namespace plait::tensor
