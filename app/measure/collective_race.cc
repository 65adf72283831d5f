#include "measure/collective_race.h"

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "comm/core/wait_policy.h"
#include "comm/session/state.h"
#include "measure/progress.h"
#include "plait/collectives.h"
#include "tune/agree.h"

namespace plait::measure {
namespace {

// Waits of this rank sleep at once as long as it lives.
class RestingWaits {
 public:
  explicit RestingWaits(comm::Group& group) : group_(group), before_(group.policy()) {
    group.set_waits({.polls = 1, .spin = 0, .yield = 0});
  }
  RestingWaits(const RestingWaits&) = delete;
  RestingWaits& operator=(const RestingWaits&) = delete;
  ~RestingWaits() { group_.set_waits(before_); }

 private:
  comm::Group& group_;
  comm::WaitPolicy before_;
};

}  // namespace

std::vector<Times> CollectiveRace::run() {
  for (Entry& entry : entries_) {
    entry.call();  // touches memory and warms up caches
    const double once = time(entry, 1).duration;
    entry.calls = std::clamp<std::int64_t>(
        static_cast<std::int64_t>(static_cast<double>(effort_.lasting) / std::max(once, 1.0)), 1,
        10000);
  }
  Progress progress(comm_.rank() == 0 ? "measuring, repetition" : "");
  // Every rank has the same samples, and so the same number of rounds.
  take_turns(entries_.size(), effort_, progress, [this](std::size_t i) {
    Entry& entry = entries_[i];
    const Sample sample = time(entry, entry.calls);
    entry.samples.push_back(entry.is_processor_time ? sample.processor : sample.duration);
    return sample.duration * static_cast<double>(entry.calls);
  });
  std::vector<Times> times;
  times.reserve(entries_.size());
  for (Entry& entry : entries_) times.push_back(summarize(entry.samples, entry.calls));
  return times;
}

CollectiveRace::Sample CollectiveRace::time(const Entry& entry, std::int64_t calls) {
  barrier(comm_);
  std::optional<RestingWaits> resting;
  if (entry.is_processor_time) resting.emplace(comm_.state().group());
  const base::Nanoseconds begin = base::now();
  const base::Nanoseconds processor_begin = base::thread_time();
  for (std::int64_t i = 0; i < calls; ++i) entry.call();
  const auto processor = static_cast<double>(base::thread_time() - processor_begin);
  const auto taken = static_cast<double>(base::now() - begin);
  resting.reset();
  const auto share = static_cast<double>(calls);
  return {.duration = tune::slowest(taken / share, comm_),
          .processor = entry.is_processor_time ? tune::slowest(processor / share, comm_) : 0};
}

}  // namespace plait::measure
