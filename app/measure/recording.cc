#include "measure/recording.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "comm/session/state.h"
#include "comm/session/timeline.h"
#include "plait/collectives.h"
#include "plait/timeline.h"
#include "trace/pack.h"

namespace plait::measure {
namespace {

constexpr int kRuns = 3;

// Records per thread: enough for several plans with thousands of chunks, in 16 MiB.
constexpr std::size_t kRecords = (std::size_t{1} << 18) - 1;

// The runs of one rank in their order. Schedules record no flights in this lane, so these flights
// are runs.
std::vector<TimeInterval> runs_of(const trace::RankRecords& rank) {
  std::vector<TimeInterval> runs;
  for (const trace::Record& record : rank.records) {
    if (record.kind == trace::Kind::flight && record.lane == Lane::compute)
      runs.push_back({.begin = record.begin, .end = record.end});
  }
  return runs;
}

}  // namespace

Recording::Recording(Communicator& comm) : comm_(comm), trace_(comm.rank(), kRecords) {
  align_clock(trace_, comm);  // and once more at the end, since clocks drift apart
  comm.state().set_trace(&trace_);
}

Recording::~Recording() { comm_.state().set_trace(nullptr); }

void Recording::run(std::string_view name, const std::function<void()>& call) {
  const Label label = trace_.intern(name);
  for (int i = 0; i < kRuns; ++i) {
    barrier(comm_);
    const base::Nanoseconds begin = base::now();
    call();
    runs_.push_back({.label = label, .time = {.begin = begin, .end = base::now()}});
  }
}

Recorded Recording::collect() {
  // Runs are recorded last, so that other records don't push them out. They are flights, because a
  // run's waiting is not computation.
  for (const Run& run : runs_) trace_.flight(Lane::compute, run.label, run.time);
  runs_.clear();
  return recorded_of(comm::collect_packs(trace_, comm_));
}

Recorded recorded_of(std::vector<std::vector<std::byte>> packs) {
  Recorded all = {.packs = std::move(packs), .ranks = {}, .runs = {}, .gaps = {}};
  std::vector<TimeInterval> together;
  for (const std::vector<std::byte>& pack : all.packs) {
    const trace::RankRecords& rank = all.ranks.emplace_back(trace::unpack(pack));
    all.clock_uncertainty = std::max(all.clock_uncertainty, rank.uncertainty);
    if (rank.dropped > 0) {
      all.gaps.push_back(base::sentence("the timeline lacks the oldest ", rank.dropped,
                                        " records of rank ", rank.rank,
                                        ", so its first plans have gaps; trace fewer plans"));
    }
    const std::vector<TimeInterval> runs = runs_of(rank);
    if (together.empty()) together = runs;
    for (std::size_t i = 0; i < together.size(); ++i) {
      together[i].begin = std::min(together[i].begin, runs.at(i).begin);
      together[i].end = std::max(together[i].end, runs.at(i).end);
    }
  }
  for (auto of_one = together.begin(); of_one != together.end(); of_one += kRuns) {
    std::sort(of_one, of_one + kRuns, [](const TimeInterval& a, const TimeInterval& b) {
      return a.end - a.begin < b.end - b.begin;
    });
    all.runs.push_back(of_one[kRuns / 2]);
  }
  return all;
}

}  // namespace plait::measure
