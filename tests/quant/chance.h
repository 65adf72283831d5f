// Random choices, the same in every run.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace plait {

class Chance {
 public:
  explicit Chance(unsigned seed) : random_(seed) {}

  std::int64_t below(std::int64_t end) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(end));
  }
  bool one_in(std::int64_t times) { return below(times) == 0; }

  template <class T>
  const T& of(const std::vector<T>& all) {
    return all[static_cast<std::size_t>(below(static_cast<std::int64_t>(all.size())))];
  }

  // In [-1, 1).
  float number() { return static_cast<float>(below(1 << 24)) * 0x1p-23F - 1.0F; }

 private:
  std::mt19937_64 random_;
};

}  // namespace plait
