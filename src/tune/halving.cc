#include "tune/halving.h"

#include <algorithm>
#include <numeric>

namespace plait::tune {
namespace {

constexpr int kFewestTurns = 3;
constexpr int kFewestLastTurns = 7;  // of the last round
constexpr int kMostTurns = 200;

constexpr double kClearly = 0.99;

std::vector<double> ratios(const std::vector<double>& times, const std::vector<double>& baseline) {
  std::vector<double> all;
  for (std::size_t i = 0; i < std::min(times.size(), baseline.size()); ++i)
    all.push_back(times[i] / std::max(baseline[i], 1.0));
  return all;
}

class Halving {
 public:
  Halving(std::size_t contenders, const TimeOnce& time) : time_(time), times_(contenders) {
    alive_.resize(contenders);
    std::iota(alive_.begin(), alive_.end(), std::size_t{0});
    // The first run of each contender is not counted: caches are cold, and memory was never
    // touched.
    for (const std::size_t one : alive_) turn_ += time_(one);
  }

  // Runs the remaining contenders in alternating order, as often as the budget allows.
  void round(double budget, const std::function<void(double)>& progress) {
    const int turns = static_cast<int>(
        std::clamp<double>(budget / std::max(turn_, 1.0),
                           alive_.size() > 2 ? kFewestTurns : kFewestLastTurns, kMostTurns));
    for (const std::size_t one : alive_) times_[one].clear();
    for (int turn = 0; turn < turns; ++turn) {
      turn_ = 0;
      for (std::size_t i = 0; i < alive_.size(); ++i) {
        const std::size_t one = alive_[turn % 2 == 0 ? i : alive_.size() - 1 - i];
        times_[one].push_back(time_(one));
        turn_ += times_[one].back();
      }
      progress(static_cast<double>(turn + 1) / turns);
    }
    std::stable_sort(alive_.begin() + 1, alive_.end(),
                     [&](std::size_t a, std::size_t b) { return ratio(a) < ratio(b); });
  }

  // Contender 0 and the faster half of the others.
  static std::size_t half(std::size_t alive) { return 1 + alive / 2; }
  void drop_half() { alive_.resize(half(alive_.size())); }

  // The number of rounds until two are left, including the round between these two.
  static int rounds(std::size_t contenders) {
    int rounds = 1;
    for (; contenders > 2; contenders = half(contenders)) ++rounds;
    return rounds;
  }

  std::size_t alive() const { return alive_.size(); }

  Outcome outcome() const {
    const bool beaten = alive_.size() > 1 && is_clearly_faster(times_[alive_[1]], times_[0]);
    const std::size_t winner = beaten ? alive_[1] : 0;
    return {.winner = winner,
            .nanoseconds = comparable_time(times_[winner], times_[0]),
            .baseline = median(times_[0])};
  }

 private:
  double ratio(std::size_t one) const { return compare(times_[one], times_[0]); }

  const TimeOnce& time_;
  std::vector<std::size_t> alive_;          // contender 0 first, then the others, fastest first
  std::vector<std::vector<double>> times_;  // of the last round
  double turn_ = 0;                         // how long the last turn took
};

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), half, values.end());
  if (values.size() % 2 == 1) return *half;
  return (*half + *std::max_element(values.begin(), half)) / 2;
}

double compare(const std::vector<double>& times, const std::vector<double>& baseline) {
  return median(ratios(times, baseline));
}

double comparable_time(const std::vector<double>& times, const std::vector<double>& baseline) {
  return median(baseline) * compare(times, baseline);
}

bool is_clearly_faster(const std::vector<double>& times, const std::vector<double>& baseline) {
  const std::vector<double> all = ratios(times, baseline);
  const auto faster = std::count_if(all.begin(), all.end(), [](double one) { return one < 1; });
  return median(all) < kClearly && 3 * faster >= 2 * static_cast<std::ptrdiff_t>(all.size());
}

Outcome halve(std::size_t contenders, base::Nanoseconds budget, const TimeOnce& time,
              const std::function<void(double)>& progress) {
  if (contenders == 0) return {};
  Halving halving(contenders, time);
  const double rounds = Halving::rounds(contenders);
  const double each = static_cast<double>(budget) / rounds;
  double done = 0;
  const auto tell = [&](double part) {
    if (progress) progress((done + part) / rounds);
  };
  halving.round(each, tell);
  while (halving.alive() > 2) {
    halving.drop_half();
    ++done;
    halving.round(each, tell);
  }
  return halving.outcome();
}

}  // namespace plait::tune
