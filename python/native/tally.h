// Counts of calls, for the report: which of them are traced.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

namespace plait::python {

// Guarded by the GIL.
class Tally {
 public:
  using Size = std::array<std::int64_t, 4>;  // rows, n, k and dtype

  // Counts a call, and says whether to trace it: the 2nd, 4th, 6th, 8th, 12th, 16th, ... of each
  // size.
  bool is_due(const Size& size) {
    if (counts_.size() > kMostSizes) counts_.clear();
    const std::int64_t count = ++counts_[size];
    const std::int64_t third = count % 3 == 0 ? count / 3 : count;
    return third > 1 && (third & (third - 1)) == 0;
  }

  void clear() { counts_.clear(); }

 private:
  static constexpr std::size_t kMostSizes = 4096;

  std::map<Size, std::int64_t> counts_;
};

}  // namespace plait::python
