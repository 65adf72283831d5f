#include "measure/race.h"

#include <algorithm>
#include <cstddef>

#include "measure/progress.h"

namespace plait::measure {
namespace {

constexpr int kFewest = 5;
constexpr int kMost = 1000;

class Runner {
 public:
  // The first call warms up caches and touches memory. The second tells how many calls make a
  // repetition.
  Runner(const Contender& contender, const Effort& effort) : contender_(contender) {
    contender_();
    const double one = time(1);
    calls_ = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(static_cast<double>(effort.lasting) / std::max(one, 1.0)));
  }

  double repeat() {
    samples_.push_back(time(calls_));
    return static_cast<double>(calls_) * samples_.back();
  }
  Times times() const { return summarize(samples_, calls_); }

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

}  // namespace

std::vector<Times> race(const std::vector<Contender>& contenders, const Effort& effort) {
  Progress progress("measuring, repetition");
  std::vector<Runner> runners;
  runners.reserve(contenders.size());
  for (const Contender& contender : contenders) runners.emplace_back(contender, effort);
  take_turns(runners.size(), effort, progress, [&](std::size_t i) { return runners[i].repeat(); });
  std::vector<Times> times;
  times.reserve(runners.size());
  for (const Runner& runner : runners) times.push_back(runner.times());
  return times;
}

void take_turns(std::size_t contenders, const Effort& effort, Progress& progress,
                const std::function<double(std::size_t)>& repeat) {
  const double budget = static_cast<double>(effort.each) * static_cast<double>(contenders);
  int rounds = std::max(effort.repetitions, 1);
  for (int round = 0; round < rounds; ++round) {
    double spent = 0;
    for (std::size_t i = 0; i < contenders; ++i)
      spent += repeat(round % 2 == 0 ? i : contenders - 1 - i);
    if (round == 0 && effort.repetitions <= 0)
      rounds = static_cast<int>(std::clamp<double>(budget / std::max(spent, 1.0), kFewest, kMost));
    progress.show(round + 1, rounds);
  }
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

}  // namespace plait::measure
