// Medians of kernels' times, by events, with inputs that are not in the L2 cache.
//
//   const Launch ours = [&](int set) { launch_ours(sets[set], stream); };
//   const Launch peer = [&](int set) { lt.run(sets[set].x, ..., stream); };
//   const std::vector<double> us = interleaved_medians({ours, peer}, {.sets = 4}, stream);
//
// All are measured in turn within every round, so that a card that gets warmer and slower does so
// for all of them. Each launch takes the next set of operands.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "gpu/device.cuh"

namespace plait::gpu {

using Launch = std::function<void(int set)>;

struct Rounds {
  int sets = 3;  // how many sets of operands the launches may be given
  int warmups = 3;
  int runs = 15;
};

// How many sets of operands of `bytes` each are needed so that a set has left an L2 cache of 50 MB
// long before it is used again: 4 times as much in all, and at least 3.
inline int sets_beyond_l2(std::size_t bytes) {
  constexpr std::size_t kEnough = std::size_t{4} * 50 * 1000 * 1000;
  return std::max(3, static_cast<int>(kEnough / std::max<std::size_t>(bytes, 1)) + 1);
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The median time of each launch, in microseconds. Launches are enqueued without waiting for the
// earlier ones, so that the time to launch is hidden behind them.
inline std::vector<double> interleaved_medians(const std::vector<Launch>& launches, Rounds rounds,
                                               cudaStream_t stream) {
  int set = 0;
  const auto next_set = [&] { return set = (set + 1) % rounds.sets; };
  for (int i = 0; i < rounds.warmups; ++i)
    for (const Launch& launch : launches) launch(next_set());
  std::vector<std::vector<std::pair<Event, Event>>> events(launches.size());
  for (int run = 0; run < rounds.runs; ++run) {
    for (std::size_t i = 0; i < launches.size(); ++i) {
      auto& [begin, end] = events[i].emplace_back();
      begin.record(stream);
      launches[i](next_set());
      end.record(stream);
    }
  }
  std::vector<double> medians;
  for (const auto& of_one : events) {
    std::vector<double> times;
    for (const auto& [begin, end] : of_one) times.push_back(end.microseconds_since(begin));
    medians.push_back(median(std::move(times)));
  }
  return medians;
}

inline double median_microseconds(const Launch& launch, Rounds rounds, cudaStream_t stream) {
  return interleaved_medians({launch}, rounds, stream).front();
}

// Tflop/s of a product, two operations for each multiplication and addition.
inline double tflops(double m, double n, double k, double microseconds) {
  return 2.0 * m * n * k / microseconds * 1e-6;
}

}  // namespace plait::gpu
