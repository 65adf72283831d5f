// Finds the fastest of several contenders without measuring all of them well: each round takes a
// share of the time, and half of those that are still in it go on to the next.
//
//   const Outcome outcome = halve(plans.size(), 2 * base::kSecond, [&](std::size_t i) {
//     return time_of(plans[i]);      // nanoseconds; the same on all ranks
//   });
//
// Contender 0 is what the others must beat (serial): it is in every round, and wins where nobody is
// clearly faster.
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
  double nanoseconds = 0;  // the winner's
  double baseline = 0;     // contender 0's, measured beside it
};

// `progress` is told how much is done, from 0 to 1: a round counts as its share of the time.
Outcome halve(std::size_t contenders, base::Nanoseconds budget, const TimeOnce& time,
              const std::function<void(double)>& progress = {});

// How the times of one contender compare with contender 0's of the same turns: the median of their
// ratios. Not the mean: one turn that something else has disturbed would decide. Not the smallest:
// it falls with every turn, and tells of luck. Not the ratio of two medians: what drifts (clock
// rates, neighbours) falls on both times of one turn, and leaves their ratio as it is.
double compare(const std::vector<double>& times, const std::vector<double>& baseline);

// Whether by compare() it is faster by 1 %, and in two of three turns faster at all: where times
// scatter more than plans differ, a median falls below 0.99 by itself now and then.
bool is_clearly_faster(const std::vector<double>& times, const std::vector<double>& baseline);

double median(std::vector<double> values);

}  // namespace plait::tune
