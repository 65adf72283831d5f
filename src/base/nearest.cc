#include "base/nearest.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace plait::base {
namespace {

// The number of letters to insert, delete, change or swap with a neighbour.
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> before(to.size() + 1);
  std::vector<std::size_t> last(to.size() + 1);
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (std::size_t i = 0; i < from.size(); ++i) {
    row[0] = i + 1;
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t change = from[i] == to[j] ? 0 : 1;
      row[j + 1] = std::min({row[j] + 1, last[j + 1] + 1, last[j] + change});
      if (i > 0 && j > 0 && from[i] == to[j - 1] && from[i - 1] == to[j])
        row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
    }
    before = last;
    last = row;
  }
  return last.back();
}

}  // namespace

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  std::string nearest;
  std::size_t fewest = 1 + std::max<std::size_t>(1, word.size() / 3);
  for (const std::string& candidate : candidates) {
    const bool begun = word.size() >= 3 && candidate.starts_with(word);
    const std::size_t changes = begun ? 1 : distance(word, candidate);
    if (changes >= fewest) continue;
    fewest = changes;
    nearest = candidate;
  }
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

}  // namespace plait::base
