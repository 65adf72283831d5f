// Finds the fastest of several contenders without measuring each of them well. Each round takes a
// share of the time, and half of its contenders go on to the next round.
//
//   const Outcome outcome = halve(plans.size(), 2 * base::kSecond, [&](std::size_t i) {
//     return time_of(plans[i]);      // nanoseconds; equal on all ranks
//   });
//
// Contender 0 is the baseline (serial). It takes part in every round, and wins unless another
// contender is clearly faster.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "base/clock.h"

namespace plait::tune {

// Runs a contender once.
using TimeOnce = std::function<double(std::size_t contender)>;

struct Outcome {
  std::size_t winner = 0;
  double nanoseconds = 0;  // the winner's, by comparable_time()
  double baseline = 0;     // contender 0's, measured in the same turns
};

// `progress` is called with the share of the work that is done, from 0 to 1. A round counts as its
// share of the time.
Outcome halve(std::size_t contenders, base::Nanoseconds budget, const TimeOnce& time,
              const std::function<void(double)>& progress = {});

// Compares a contender with contender 0 by the median of the ratios of their times in the same
// turns. The mean would let one disturbed turn decide. The minimum falls with every turn, so luck
// would decide. In a ratio of two medians, drift (clock rates, other processes) would not cancel,
// while it changes both times of one turn alike.
double compare(const std::vector<double>& times, const std::vector<double>& baseline);

// The baseline's median time multiplied by compare(). The quotient of the two stored times is then
// the ratio that decides. The quotient of two medians is not: it may be 1 for a plan that was
// faster in most turns.
double comparable_time(const std::vector<double>& times, const std::vector<double>& baseline);

// True if it is faster by 1 % according to compare(), and faster at all in two of three turns. If
// times scatter more than plans differ, a median sometimes falls below 0.99 by chance.
bool is_clearly_faster(const std::vector<double>& times, const std::vector<double>& baseline);

double median(std::vector<double> values);

}  // namespace plait::tune
