// Random choices, equal in every run.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace plait {

// The rounds of a test with random cases: fewer with a sanitizer, which makes each take many times
// as long.
constexpr int rounds(int all) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return (all + 7) / 8;
#else
  return all;
#endif
}

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

// Inserts, removes or changes a byte, or repeats the end of the text.
inline void mutate(std::string& text, Chance& chance) {
  const auto at =
      static_cast<std::size_t>(chance.below(static_cast<std::int64_t>(text.size()) + 1));
  switch (chance.below(4)) {
    case 0:
      text.insert(at, 1, static_cast<char>(chance.below(256)));
      break;
    case 1:
      if (at < text.size()) text.erase(at, 1);
      break;
    case 2:
      if (at < text.size()) text[at] = static_cast<char>(chance.below(256));
      break;
    default:
      text += text.substr(at);
  }
}

}  // namespace plait
