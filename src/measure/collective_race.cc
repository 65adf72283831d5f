#include "measure/collective_race.h"

#include <algorithm>

#include "base/clock.h"
#include "measure/progress.h"
#include "plait/collectives.h"
#include "tune/agree.h"

namespace plait::measure {
std::vector<Times> CollectiveRace::run() {
  for (Entry& entry : entries_) {
    entry.call();  // touches memory and warms up caches
    const double once = time(entry, 1);
    entry.calls = std::clamp<std::int64_t>(
        static_cast<std::int64_t>(static_cast<double>(effort_.lasting) / std::max(once, 1.0)), 1,
        10000);
  }
  Progress progress(comm_.rank() == 0 ? "measuring, repetition" : "");
  // Every rank has the same samples, and so the same number of rounds.
  take_turns(entries_.size(), effort_, progress, [this](std::size_t i) {
    Entry& entry = entries_[i];
    entry.samples.push_back(time(entry, entry.calls));
    return entry.samples.back() * static_cast<double>(entry.calls);
  });
  std::vector<Times> times;
  times.reserve(entries_.size());
  for (Entry& entry : entries_) times.push_back(summarize(entry.samples, entry.calls));
  return times;
}

double CollectiveRace::time(const Entry& entry, std::int64_t calls) {
  barrier(comm_);
  const base::Nanoseconds begin = base::now();
  for (std::int64_t i = 0; i < calls; ++i) entry.call();
  const auto taken = static_cast<double>(base::now() - begin);
  return tune::slowest(taken / static_cast<double>(calls), comm_);
}

}  // namespace plait::measure
