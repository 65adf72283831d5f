// Random numbers that a seed repeats.
#pragma once

#include <cstdint>
#include <random>

namespace plait::chaos {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  int below(int end) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(end)); }
  bool one_in(int times) { return below(times) == 0; }
  std::uint64_t seed() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace plait::chaos
