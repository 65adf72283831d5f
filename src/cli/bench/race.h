// Measures alternatives side by side.
//
//   const auto times = race({[&] { amx.run(call); }, [&] { xsmm.run(call); }}, effort);
//
// A repetition is a run of back-to-back calls of one contender. They take turns, in alternating
// order, so that what drifts (clock rates, neighbours) falls on all of them alike. Each is warmed
// up before the first turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "cli/bench/progress.h"

namespace plait::cli {

struct Effort {
  int repetitions = 0;  // of each contender; 0: as many as `each` has time for, but at least 5
  base::Nanoseconds each = base::kSecond;
  base::Nanoseconds lasting = 10 * base::kMillisecond;  // of one repetition, if one call is shorter
};

// Nanoseconds per call. The median says what to expect; the minimum is what a quiet moment gives.
struct Times {
  double median = 0;
  double min = 0;
  double max = 0;
  int repetitions = 0;
  std::int64_t calls = 0;  // of one repetition
};

// A median is taken to be good to a hundredth. What lies between two of them is no more than noise
// where it is smaller than both errors: nothing can be said of it.
inline constexpr double kNoise = 0.02;

using Contender = std::function<void()>;

// In the order of the contenders.
std::vector<Times> race(const std::vector<Contender>& contenders, const Effort& effort);

// Rounds in which each of so many contenders has its turn: repeat(i) makes one repetition and says
// how many nanoseconds it took. How many rounds there are follows from the first.
void take_turns(std::size_t contenders, const Effort& effort, Progress& progress,
                const std::function<double(std::size_t)>& repeat);

// Of repetitions with so many calls each, in any order; there is at least one.
Times summarize(std::vector<double> samples, std::int64_t calls);

}  // namespace plait::cli
