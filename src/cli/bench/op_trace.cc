#include "cli/bench/op_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "cli/bench/op_case.h"
#include "cli/bench/op_report.h"
#include "comm/state.h"
#include "plait/collectives.h"
#include "plait/timeline.h"
#include "report/page.h"
#include "report/picture.h"
#include "trace/pack.h"

namespace plait::cli {
namespace {

// Every rank's bytes, on every rank.
std::vector<std::vector<std::byte>> gather(const std::vector<std::byte>& mine, Communicator& comm) {
  const auto world = static_cast<std::size_t>(comm.world());
  std::vector<std::int64_t> sizes(world);
  const auto size = static_cast<std::int64_t>(mine.size());
  all_gather({&size, sizeof(size), Dtype::s8}, {sizes.data(), sizeof(size) * world, Dtype::s8},
             comm);
  const std::vector<std::size_t> counts(sizes.begin(), sizes.end());
  std::size_t total = 0;
  for (const std::size_t count : counts) total += count;
  std::vector<std::byte> all(total);
  all_gather({mine.data(), mine.size(), Dtype::s8}, {all.data(), total, Dtype::s8}, comm, counts);
  std::vector<std::vector<std::byte>> each;
  each.reserve(world);
  auto next = all.begin();
  for (const std::size_t count : counts) {
    const auto end = next + static_cast<std::ptrdiff_t>(count);
    each.emplace_back(next, end);
    next = end;
  }
  return each;
}

// When all ranks together were at it: the ranks of one host have one clock.
Interval of_all(const Interval& mine, Communicator& comm) {
  std::vector<std::byte> bytes(sizeof(mine));
  std::memcpy(bytes.data(), &mine, sizeof(mine));
  Interval whole = mine;
  for (const std::vector<std::byte>& theirs : gather(bytes, comm)) {
    Interval other = {};
    std::memcpy(&other, theirs.data(), sizeof(other));
    whole.begin = std::min(whole.begin, other.begin);
    whole.end = std::max(whole.end, other.end);
  }
  return whole;
}

// Records into `trace` while it lives.
class Recording {
 public:
  Recording(Communicator& comm, Trace& trace) : state_(comm.state()) { state_.set_trace(&trace); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording() { state_.set_trace(nullptr); }

 private:
  Communicator::State& state_;
};

Interval run_once(const std::function<void()>& run, std::string_view plan, Trace& trace,
                  Communicator& comm) {
  barrier(comm);
  const Span span(&trace, Lane::compute, trace.intern(plan));
  const base::Nanoseconds begin = base::now();
  run();
  return {.begin = begin, .end = base::now()};
}

// Of a few runs the one of median length: one that something else has disturbed is not what the
// plan does, and neither is the luckiest.
constexpr std::size_t kRuns = 3;
Interval run_plan(const OpCase& one, const Plan& plan, overlap::Pace pace, Trace& trace,
                  Communicator& comm) {
  const auto runner = one.runner(plan, comm);
  runner->run(pace);  // as warm as those that were measured
  std::array<Interval, kRuns> runs = {};
  for (Interval& run : runs) run = run_once([&] { runner->run(pace); }, name(plan), trace, comm);
  for (Interval& run : runs) run = of_all(run, comm);
  std::sort(runs.begin(), runs.end(),
            [](const Interval& a, const Interval& b) { return a.end - a.begin < b.end - b.begin; });
  return runs[kRuns / 2];
}

void write_file(const std::string& path, const std::string& text) {
  base::AtomicFile file(path);
  file.append(text);
  file.commit();
}

}  // namespace

void trace(const OpBenchOptions& options, const OpMeasurement& result, Communicator& comm) {
  if (!options.traces()) return;
  Trace records(comm.rank());
  const Recording recording(comm, records);
  const OpCase one(options, result.size, comm);
  std::vector<Interval> intervals;
  {
    Communicator traced = comm.with_link(result.link);
    for (const Plan& plan : options.plans)
      intervals.push_back(run_plan(one, plan, result.pace, records, traced));
  }
  if (!options.trace.empty()) write_timeline(options.trace, records, comm);
  if (!options.draws()) return;
  std::vector<trace::RankRecords> ranks;
  for (const std::vector<std::byte>& pack : gather(records.pack(), comm))
    ranks.push_back(trace::unpack(pack));
  if (comm.rank() != 0) return;
  report::Timeline timeline = {
      .title = fmt::format("{}, m={} n={} k={}, {} by {}", name(options.op), result.size.m,
                           result.size.n, result.size.k, name(options.x), options.weight),
      .subtitle = fmt::format("{}; {} ranks over {}{}", show_machine(result), result.ranks,
                              result.transport,
                              result.link ? ", " + plait::describe(*result.link) : std::string()),
      .product = static_cast<std::int64_t>(result.product.median),
      .collective = static_cast<std::int64_t>(result.collective.median),
      .runs = {}};
  for (std::size_t i = 0; i < options.plans.size(); ++i) {
    timeline.runs.push_back(report::run_of(name(options.plans[i]), ranks, intervals[i]));
    if (i > 0) timeline.runs.back().efficiency = result.efficiency(result.plans[i]);
  }
  if (!options.html.empty()) write_file(options.html, report::page(timeline));
  if (!options.svg.empty()) write_file(options.svg, report::picture_file(timeline));
}

}  // namespace plait::cli
