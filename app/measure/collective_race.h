// Measures operations that all ranks perform together, side by side.
//
//   CollectiveRace race(comm, effort);
//   race.add([&] { serial.run(); });
//   race.add([&] { fused.run(); });
//   const std::vector<Times> times = race.run();
//
// Contenders take turns on all ranks at once, in alternating order. A repetition begins when all
// ranks are ready, and takes as long as the slowest rank. Every rank gets the same times.
#pragma once

#include <functional>
#include <vector>

#include "measure/race.h"
#include "plait/communicator.h"

namespace plait::measure {

class CollectiveRace {
 public:
  CollectiveRace(Communicator& comm, const Effort& effort) : comm_(comm), effort_(effort) {}

  void add(std::function<void()> call) { entries_.push_back({.call = std::move(call)}); }

  // Its figures are the processor time of the calling thread, with waits that rest: a rank that
  // polls looks busy. The transport decides how it rests.
  void add_processor_time(std::function<void()> call) {
    entries_.push_back({.call = std::move(call), .is_processor_time = true});
  }

  // In the order in which they were added.
  std::vector<Times> run();

 private:
  struct Entry {
    std::function<void()> call;
    bool is_processor_time = false;
    std::int64_t calls = 1;
    std::vector<double> samples = {};
  };

  // Nanoseconds per call, of the slowest rank.
  struct Sample {
    double duration;
    double processor;
  };
  Sample time(const Entry& entry, std::int64_t calls);

  Communicator& comm_;
  const Effort& effort_;
  std::vector<Entry> entries_;
};

}  // namespace plait::measure
