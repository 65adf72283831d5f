#include "race.h"

#include <sys/resource.h>

#include <algorithm>

#include "base/check.h"
#include "comm/session/gather.h"

namespace plait::bench {
namespace {

Nanoseconds time_calls(Communicator& comm, const Contender& contender, int calls) {
  Nanoseconds total = 0;
  if (contender.prepare) {
    for (int i = 0; i < calls; ++i) {
      contender.prepare();
      barrier(comm);
      const Nanoseconds begin = base::now();
      contender.call();
      total += base::now() - begin;
    }
    return total;
  }
  barrier(comm);
  const Nanoseconds begin = base::now();
  for (int i = 0; i < calls; ++i) contender.call();
  return base::now() - begin;
}

struct Repetition {
  double time;  // nanoseconds per call of the slowest rank
  bool disturbed;
};

Repetition repeat(Communicator& comm, const Contender& contender, int calls) {
  const Switches before = switches();
  const auto time = static_cast<double>(time_calls(comm, contender, calls));
  const bool disturbed = switches() != before;
  return {.time = largest(comm, time / calls), .disturbed = largest(comm, disturbed ? 1 : 0) != 0};
}

struct Samples {
  std::vector<double> quiet;
  std::vector<double> disturbed;
};

Summary summarize(const Samples& samples) {
  Summary summary = bench::summarize(samples.quiet.empty() ? samples.disturbed : samples.quiet);
  summary.kept = static_cast<int>(samples.quiet.size());
  summary.tried = static_cast<int>(samples.quiet.size() + samples.disturbed.size());
  return summary;
}

// The number of calls that fill a repetition. Finding it also warms up.
int calls_for(Communicator& comm, const Contender& contender, Nanoseconds lasting) {
  constexpr int kMost = 1 << 16;
  for (int calls = 1;; calls *= 4) {
    const double time = largest(comm, static_cast<double>(time_calls(comm, contender, calls)));
    const double fitting = static_cast<double>(lasting) * calls / std::max(time, 1.0);
    if (fitting <= 4.0 * calls || calls >= kMost) {
      return static_cast<int>(std::clamp(fitting, 1.0, static_cast<double>(kMost)));
    }
  }
}

}  // namespace

Switches switches() {
  rusage usage = {};
  ::getrusage(RUSAGE_THREAD, &usage);
  return {.forced = usage.ru_nivcsw, .given = usage.ru_nvcsw};
}

double largest(Communicator& comm, double mine) {
  const auto all = comm::gather_values(mine, comm);
  return *std::max_element(all.begin(), all.end());
}

Summary summarize(std::vector<double> samples) {
  PLAIT_CHECK(!samples.empty(), "summarize: no samples");
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  const double median =
      samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
  const int count = static_cast<int>(samples.size());
  return {.median = median,
          .min = samples.front(),
          .max = samples.back(),
          .kept = count,
          .tried = count};
}

std::vector<Summary> race(Communicator& comm, const std::vector<Contender>& contenders,
                          const Effort& effort) {
  const std::size_t count = contenders.size();
  std::vector<int> calls(count);
  std::transform(
      contenders.begin(), contenders.end(), calls.begin(),
      [&](const Contender& contender) { return calls_for(comm, contender, effort.lasting); });
  std::vector<Samples> samples(count);
  const auto wanted = static_cast<std::size_t>(effort.repetitions);
  const auto enough = [&] {
    return std::all_of(samples.begin(), samples.end(),
                       [&](const Samples& mine) { return mine.quiet.size() >= wanted; });
  };
  const Nanoseconds begin = base::now();
  // Ranks read their clocks at different moments, but all must leave after the same round.
  const auto patient = [&] {
    return largest(comm, static_cast<double>(base::now() - begin)) <
           static_cast<double>(effort.patience);
  };
  for (int round = 0; round == 0 || (!enough() && patient()); ++round) {
    for (std::size_t turn = 0; turn < count; ++turn) {
      const std::size_t i = round % 2 == 0 ? turn : count - 1 - turn;
      const Repetition seen = repeat(comm, contenders[i], calls[i]);
      (seen.disturbed ? samples[i].disturbed : samples[i].quiet).push_back(seen.time);
    }
  }
  std::vector<Summary> results(count);
  std::transform(samples.begin(), samples.end(), results.begin(),
                 [](const Samples& mine) { return summarize(mine); });
  return results;
}

}  // namespace plait::bench
