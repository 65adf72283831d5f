#include "cli/bench/race.h"

#include <algorithm>
#include <cstddef>

#include "cli/bench/progress.h"

namespace plait::cli {
namespace {

constexpr int kFewest = 5;
constexpr int kMost = 1000;

class Runner {
 public:
  // The first call finds cold caches and memory that was never touched; the second one says how
  // many make a repetition.
  Runner(const Contender& contender, const Effort& effort) : contender_(contender) {
    contender_();
    const double one = time(1);
    calls_ = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(static_cast<double>(effort.lasting) / std::max(one, 1.0)));
  }

  void repeat() { samples_.push_back(time(calls_)); }
  Times times() const { return summarize(samples_, calls_); }
  double repetition() const { return static_cast<double>(calls_) * samples_.back(); }

 private:
  double time(std::int64_t calls) const {
    const base::Nanoseconds begin = base::now();
    for (std::int64_t i = 0; i < calls; ++i) contender_();
    return static_cast<double>(base::now() - begin) / static_cast<double>(calls);
  }

  const Contender& contender_;
  std::int64_t calls_ = 1;
  std::vector<double> samples_;
};

// By what the first round took.
int rounds_for(const std::vector<Runner>& runners, const Effort& effort) {
  if (effort.repetitions > 0) return effort.repetitions;
  double round = 0;
  for (const Runner& runner : runners) round += runner.repetition();
  const double budget = static_cast<double>(effort.each) * static_cast<double>(runners.size());
  return static_cast<int>(std::clamp<double>(budget / std::max(round, 1.0), kFewest, kMost));
}

}  // namespace

std::vector<Times> race(const std::vector<Contender>& contenders, const Effort& effort) {
  Progress progress("measuring, repetition");
  std::vector<Runner> runners;
  runners.reserve(contenders.size());
  for (const Contender& contender : contenders) runners.emplace_back(contender, effort);
  int rounds = 1;
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < runners.size(); ++i)
      runners[round % 2 == 0 ? i : runners.size() - 1 - i].repeat();
    if (round == 0) rounds = rounds_for(runners, effort);
    progress.show(round + 1, rounds);
  }
  std::vector<Times> times;
  times.reserve(runners.size());
  for (const Runner& runner : runners) times.push_back(runner.times());
  return times;
}

Times summarize(std::vector<double> samples, std::int64_t calls) {
  std::sort(samples.begin(), samples.end());
  const std::size_t half = samples.size() / 2;
  const double median =
      samples.size() % 2 == 1 ? samples[half] : (samples[half - 1] + samples[half]) / 2;
  return {.median = median,
          .min = samples.front(),
          .max = samples.back(),
          .repetitions = static_cast<int>(samples.size()),
          .calls = calls};
}

}  // namespace plait::cli
