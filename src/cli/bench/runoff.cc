#include "cli/bench/runoff.h"

#include <algorithm>

#include "base/clock.h"
#include "cli/bench/progress.h"
#include "plait/collectives.h"
#include "tune/agree.h"

namespace plait::cli {
namespace {

constexpr int kFewest = 5;
constexpr int kMost = 1000;

}  // namespace

std::vector<Times> Runoff::run() {
  for (Entry& entry : entries_) {
    entry.call();  // memory that was never touched, caches that are cold
    const double once = time(entry, 1);
    entry.calls = std::clamp<std::int64_t>(
        static_cast<std::int64_t>(static_cast<double>(effort_.lasting) / std::max(once, 1.0)), 1,
        10000);
  }
  Progress progress(comm_.rank() == 0 ? "measuring, repetition" : "");
  int rounds = 1;
  for (int round = 0; round < rounds; ++round) {
    double spent = 0;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      Entry& entry = entries_[round % 2 == 0 ? i : entries_.size() - 1 - i];
      entry.samples.push_back(time(entry, entry.calls));
      spent += entry.samples.back() * static_cast<double>(entry.calls);
    }
    if (round == 0) rounds = rounds_for(spent);
    progress.show(round + 1, rounds);
  }
  std::vector<Times> times;
  times.reserve(entries_.size());
  for (Entry& entry : entries_) times.push_back(summarize(entry.samples, entry.calls));
  return times;
}

double Runoff::time(const Entry& entry, std::int64_t calls) {
  barrier(comm_);
  const base::Nanoseconds begin = base::now();
  for (std::int64_t i = 0; i < calls; ++i) entry.call();
  const auto taken = static_cast<double>(base::now() - begin);
  return tune::slowest(taken / static_cast<double>(calls), comm_);
}

// Every rank has the same samples, and comes to the same number.
int Runoff::rounds_for(double round) const {
  if (effort_.repetitions > 0) return effort_.repetitions;
  const double budget = static_cast<double>(effort_.each) * static_cast<double>(entries_.size());
  return static_cast<int>(std::clamp<double>(budget / std::max(round, 1.0), kFewest, kMost));
}

}  // namespace plait::cli
