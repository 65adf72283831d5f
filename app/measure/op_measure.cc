#include "measure/op_measure.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/clock.h"
#include "comm/session/transports.h"
#include "measure/collective_race.h"
#include "measure/exchange_case.h"
#include "measure/link_search.h"
#include "plait/collectives.h"
#include "tensor/compare.h"
#include "tune/op_case.h"

namespace plait::measure {
namespace {

constexpr int kTrials = 5;
constexpr int kMostTurns = 4;
constexpr double kCloseEnough = 0.04;
constexpr Effort kFew = {.repetitions = 3};

// A serial run is product plus collective, and the ideal hides the shorter one of the two. A serial
// run that is longer than both together includes what they cost each other (caches, ranks that come
// late). If the excess is half as much again, the machine's speed changed during the serial run.
constexpr double kMostHidden = 1.5;

// A serial run that is much shorter than both together was measured in a faster moment than they
// were, and so the ideal is too long.
constexpr double kShortestSerial = 0.8;

// Finds a link over which the collective takes about `ratio` times the product. The tables report a
// later measurement.
template <class Case>
std::optional<Link> link_for(const OpSetup& setup, const Case& one,
                             std::optional<double> ns_per_flop, Communicator& comm) {
  if (setup.link.ratio == 0) return setup.link.link;
  const auto product = one.product(comm);
  const auto run_product = [&] { product->run(ns_per_flop); };
  CollectiveRace alone(comm, kFew);
  alone.add(run_product);
  const double wanted = setup.link.ratio * alone.run().front().median;
  LinkSearch search(std::max(1.0, one.bytes_on_link() / wanted * 1e9));
  for (int turn = 0; turn < kMostTurns && search.off() > kCloseEnough; ++turn) {
    Communicator linked = comm.with_link(link_of(search.next()));
    const auto serial = one.runner(setup.plans.front(), linked);
    // The two are measured in turns, so that a machine that slows down slows both.
    CollectiveRace race(comm, kFew);
    race.add(run_product);
    race.add([&] { serial->communicate(); });
    const std::vector<Times> times = race.run();
    search.take(times[1].median / (setup.link.ratio * times[0].median));
  }
  return link_of(search.best());
}

// Measures how fast rank 0 multiplies while the other ranks are idle.
template <class Case>
std::optional<double> ns_per_flop_of(const Case& one, Communicator& comm) {
  const auto product = one.product(comm);
  float taken = 0;
  if (comm.rank() == 0) {
    product->run();
    std::vector<double> samples;
    for (int i = 0; i < kTrials; ++i) {
      const base::Nanoseconds begin = base::now();
      product->run();
      samples.push_back(static_cast<double>(base::now() - begin));
    }
    taken = static_cast<float>(summarize(samples, 1).median / std::max(one.flops(), 1.0));
  }
  broadcast({&taken, 1}, 0, comm);
  return double{taken};
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
  return efficiency(one.times.median, serial());
}

std::optional<double> OpMeasurement::efficiency(double time, double beside) const {
  // In shared memory the collective is work of the processors that also multiply, so nothing can
  // hide it.
  if (!link && !comm::crosses_hosts(transport)) return std::nullopt;
  const double hidden_at_best = beside - ideal();
  if (hidden_at_best < kNoise * beside) return std::nullopt;  // too small to divide by
  if (beside < kShortestSerial * (product.median + collective.median)) return std::nullopt;
  // Only the shorter one can be hidden; a larger value comes from another moment.
  if (hidden_at_best > kMostHidden * std::min(product.median, collective.median))
    return std::nullopt;
  return (beside - time) / hidden_at_best;
}

namespace {

template <class Case>
OpMeasurement measure_case(const OpSetup& setup, const OpSize& size, const Case& one,
                           Communicator& comm) {
  const std::optional<double> ns_per_flop = setup.waits ? ns_per_flop_of(one, comm) : std::nullopt;
  const std::optional<Link> link = link_for(setup, one, ns_per_flop, comm);
  std::optional<Communicator> linked;
  if (link) linked = comm.with_link(link);
  Communicator& over = linked ? *linked : comm;

  const auto product = one.product(comm);
  const auto unlinked = one.runner(setup.plans.front(), comm);
  std::vector<decltype(one.runner({}, comm))> runners;
  runners.reserve(setup.plans.size());
  for (const Plan& plan : setup.plans) runners.push_back(one.runner(plan, over));

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

  CollectiveRace race(comm, setup.effort);
  race.add([&] { product->run(ns_per_flop); });
  race.add([&] { runners.front()->communicate(); });
  // In shared memory all of the collective is work. Between hosts the rest of it is waiting.
  const auto work = [&] { unlinked->communicate(); };
  if (comm::crosses_hosts(comm.transport())) {
    race.add_processor_time(work);
  } else {
    race.add(work);
  }
  for (const auto& runner : runners) race.add([&runner, ns_per_flop] { runner->run(ns_per_flop); });
  const std::vector<Times> times = race.run();

  OpMeasurement result = {.size = size,
                          .ranks = comm.world(),
                          .transport = std::string(comm.transport()),
                          .link = link,
                          .ns_per_flop = ns_per_flop,
                          .product = times[0],
                          .collective = times[1],
                          .collective_cpu = times[2]};
  for (std::size_t i = 0; i < runners.size(); ++i)
    result.plans.push_back({.plan = setup.plans[i], .times = times[3 + i], .bits_equal = equal[i]});
  return result;
}

template <class Case>
Recorded record_case(const OpSetup& setup, const OpMeasurement& result, const Case& one,
                     Communicator& comm) {
  Recording recording(comm);
  {
    Communicator traced = comm.with_link(result.link);
    for (const Plan& plan : setup.plans) {
      const auto runner = one.runner(plan, traced);
      runner->run(result.ns_per_flop);  // so that it is as warm as the measured runs
      recording.run(name(plan), [&] { runner->run(result.ns_per_flop); });
    }
  }
  return recording.collect();
}

}  // namespace

OpMeasurement measure(const OpSetup& setup, const OpSize& size, Communicator& comm) {
  if (setup.exchange)
    return measure_case(setup, size, ExchangeCase(setup, *setup.exchange, size, comm), comm);
  return measure_case(setup, size, tune::OpCase(problem_of(setup, size), comm), comm);
}

Recorded record(const OpSetup& setup, const OpMeasurement& result, Communicator& comm) {
  const OpSize& size = result.size;
  if (setup.exchange)
    return record_case(setup, result, ExchangeCase(setup, *setup.exchange, size, comm), comm);
  return record_case(setup, result, tune::OpCase(problem_of(setup, size), comm), comm);
}

}  // namespace plait::measure
