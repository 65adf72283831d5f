#include "trace/collect.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace plait::trace {
namespace {

// Labels are compared by text, not by pointer: one literal may have an address in each source file.
class LabelNumbers {
 public:
  explicit LabelNumbers(std::vector<std::string>& labels) : labels_(labels) {}

  std::uint32_t operator()(std::string_view text) {
    const auto [at, fresh] = numbers_.try_emplace(text, static_cast<std::uint32_t>(labels_.size()));
    if (fresh) labels_.emplace_back(text);
    return at->second;
  }

 private:
  std::vector<std::string>& labels_;
  std::unordered_map<std::string_view, std::uint32_t> numbers_;
};

base::Nanoseconds within_reach(base::Nanoseconds time) {
  return std::clamp(time, -kFarthest, kFarthest);
}

}  // namespace

RankRecords collect(const std::vector<Ring::Content>& contents, const Scale& scale,
                    const ClockLine& clock) {
  RankRecords all;
  all.uncertainty = clock.uncertainty();
  LabelNumbers number_of(all.labels);
  for (std::size_t thread = 0; thread < contents.size(); ++thread) {
    all.dropped += static_cast<std::int64_t>(contents[thread].dropped);
    for (const Entry& entry : contents[thread].entries) {
      const auto time = [&](std::uint64_t stamp) {
        // The times of a flight come from the caller, in nanoseconds, and may be wrong.
        const bool given = entry.kind == Kind::flight;
        const base::Nanoseconds here =
            within_reach(given ? static_cast<base::Nanoseconds>(stamp) : scale.time(stamp));
        return within_reach(here + clock.offset_at(here));
      };
      const base::Nanoseconds begin = time(entry.begin);
      const base::Nanoseconds end = time(entry.end);
      all.records.push_back({.kind = entry.kind,
                             .lane = entry.lane,
                             .thread = static_cast<std::uint32_t>(thread),
                             .label = number_of(entry.label),
                             .begin = begin,
                             .end = std::max(begin, end),
                             .args = entry.args});
    }
  }
  return all;
}

}  // namespace plait::trace
