#include "cli/bench/op_measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "cli/bench/op_case.h"
#include "cli/bench/progress.h"
#include "plait/collectives.h"
#include "tensor/compare.h"

namespace plait::cli {
namespace {

constexpr int kFewest = 5;
constexpr int kMost = 1000;
constexpr std::int64_t kLatency = 5 * base::kMicrosecond;  // of a link that a ratio asks for

// What can't be told from noise is not divided by.
constexpr double kNoise = 0.02;

// The largest of what the ranks have: their clocks differ, their durations don't.
double slowest(double nanoseconds, Communicator& comm) {
  auto mine = static_cast<float>(nanoseconds);
  std::vector<float> all(static_cast<std::size_t>(comm.world()));
  all_gather({&mine, 1}, {all.data(), all.size()}, comm);
  return double{*std::max_element(all.begin(), all.end())};
}

// Contenders take turns on all ranks at once; a repetition begins when all are there.
class Runoff {
 public:
  Runoff(Communicator& comm, const Effort& effort) : comm_(comm), effort_(effort) {}

  void add(std::function<void()> call) { entries_.push_back({.call = std::move(call)}); }

  std::vector<Times> run() {
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
      if (comm_.rank() == 0) progress.show(round + 1, rounds);
    }
    std::vector<Times> times;
    times.reserve(entries_.size());
    for (Entry& entry : entries_) times.push_back(summarize(entry.samples, entry.calls));
    return times;
  }

 private:
  struct Entry {
    std::function<void()> call;
    std::int64_t calls = 1;
    std::vector<double> samples = {};
  };

  double time(const Entry& entry, std::int64_t calls) {
    barrier(comm_);
    const base::Nanoseconds begin = base::now();
    for (std::int64_t i = 0; i < calls; ++i) entry.call();
    const auto taken = static_cast<double>(base::now() - begin);
    return slowest(taken / static_cast<double>(calls), comm_);
  }

  // Every rank has the same samples, and comes to the same number.
  int rounds_for(double round) const {
    if (effort_.repetitions > 0) return effort_.repetitions;
    const double budget = static_cast<double>(effort_.each) * static_cast<double>(entries_.size());
    return static_cast<int>(std::clamp<double>(budget / std::max(round, 1.0), kFewest, kMost));
  }

  Communicator& comm_;
  const Effort& effort_;
  std::vector<Entry> entries_;
};

double median_of(std::function<void()> call, Communicator& comm) {
  const Effort effort = {.repetitions = 3};
  Runoff runoff(comm, effort);
  runoff.add(std::move(call));
  return runoff.run().front().median;
}

// Over which the collective takes `ratio` times the product: by the bytes at first, then by what
// that gave, because latencies and copies take time too.
std::optional<Link> link_for(const OpBenchOptions& options, const OpCase& one, Communicator& comm) {
  if (options.link.ratio == 0) return options.link.link;
  if (comm.world() == 1) return std::nullopt;
  const auto product = one.product(comm);
  const double wanted = options.link.ratio * median_of([&] { product->run(); }, comm);
  Link link = {.bytes_per_second = std::max(1.0, one.bytes_on_link() / wanted * 1e9),
               .latency_ns = kLatency};
  for (int turn = 0; turn < 2; ++turn) {
    Communicator linked = comm.with_link(link);
    const auto serial = one.runner(options.plans.front(), linked);
    const double got = median_of([&] { serial->communicate(); }, comm);
    link.bytes_per_second = std::max(1.0, link.bytes_per_second * got / wanted);
  }
  return link;
}

bool all_agree(bool mine, Communicator& comm) {
  float differing = mine ? 0.0F : 1.0F;
  all_reduce({&differing, 1}, comm);
  return differing == 0.0F;
}

}  // namespace

double OpMeasurement::ideal() const { return std::max(product.median, collective.median); }
double OpMeasurement::bound() const {
  return std::max(product.median + collective_cpu.median, collective.median);
}

std::optional<double> OpMeasurement::efficiency(const PlanTimes& one) const {
  const double hidden_at_best = serial() - ideal();
  if (hidden_at_best < kNoise * serial()) return std::nullopt;
  return (serial() - one.times.median) / hidden_at_best;
}

OpMeasurement measure(const OpBenchOptions& options, const OpSize& size, Communicator& comm) {
  const OpCase one(options, size, comm);
  const std::optional<Link> link = link_for(options, one, comm);
  std::optional<Communicator> linked;
  if (link) linked = comm.with_link(link);
  Communicator& over = linked ? *linked : comm;

  const auto product = one.product(comm);
  const auto unlinked = one.runner(options.plans.front(), comm);
  std::vector<std::unique_ptr<OpCase::Runner>> runners;
  runners.reserve(options.plans.size());
  for (const Plan& plan : options.plans) runners.push_back(one.runner(plan, over));

  std::vector<bool> equal;
  std::vector<std::byte> serial;
  for (const auto& runner : runners) {
    const ConstTensorView out = one.out();
    if (out.bytes() > 0) std::memset(const_cast<void*>(out.data), 0xA5, out.bytes());
    runner->run();
    const auto* bytes = static_cast<const std::byte*>(out.data);
    if (runner == runners.front()) serial.assign(bytes, bytes + out.bytes());
    equal.push_back(
        all_agree(out.bytes() == 0 || std::memcmp(serial.data(), bytes, out.bytes()) == 0, comm));
  }

  Runoff runoff(comm, options.effort);
  runoff.add([&] { product->run(); });
  runoff.add([&] { runners.front()->communicate(); });
  runoff.add([&] { unlinked->communicate(); });
  for (const auto& runner : runners) runoff.add([&runner] { runner->run(); });
  const std::vector<Times> times = runoff.run();

  OpMeasurement result = {.size = size,
                          .ranks = comm.world(),
                          .transport = std::string(comm.transport()),
                          .link = link,
                          .product = times[0],
                          .collective = times[1],
                          .collective_cpu = times[2],
                          .plans = {}};
  for (std::size_t i = 0; i < runners.size(); ++i)
    result.plans.push_back(
        {.plan = options.plans[i], .times = times[3 + i], .bits_equal = equal[i]});
  return result;
}

}  // namespace plait::cli
