// Measures alternatives side by side.
//
//   const auto times = race({[&] { amx.run(call); }, [&] { vector.run(call); }}, effort);
//
// A repetition is a run of back-to-back calls of one contender. Contenders take turns in
// alternating order, so that drift (clock rates, other load) affects all of them alike. Each is
// warmed up before its first turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "measure/progress.h"

namespace plait::measure {

struct Effort {
  int repetitions = 0;  // of each contender; 0: as many as `each` allows, but at least 5
  base::Nanoseconds each = base::kSecond;
  base::Nanoseconds lasting = 10 * base::kMillisecond;  // the least duration of a repetition
};

// Nanoseconds per call. The median is the time to expect; the minimum is that of an undisturbed
// run.
struct Times {
  double median = 0;
  double min = 0;
  double max = 0;
  int repetitions = 0;
  std::int64_t calls = 0;  // calls per repetition
};

// A median is assumed to be exact to one percent. A difference of two medians that is below both
// errors together is noise.
inline constexpr double kNoise = 0.02;

using Contender = std::function<void()>;

// The times are in the order of the contenders.
std::vector<Times> race(const std::vector<Contender>& contenders, const Effort& effort);

// Runs rounds in which each of so many contenders has one turn. repeat(i) runs one repetition of
// contender i and returns its nanoseconds. The first round determines the number of rounds.
void take_turns(std::size_t contenders, const Effort& effort, Progress& progress,
                const std::function<double(std::size_t)>& repeat);

// Summarises repetitions of so many calls each, in any order. There must be at least one.
Times summarize(std::vector<double> samples, std::int64_t calls);

}  // namespace plait::measure
