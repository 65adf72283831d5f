#include "tune/network.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <typeinfo>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "comm/session/gather.h"
#include "comm/session/state.h"
#include "plait/collectives.h"
#include "plan/cache.h"
#include "tune/agree.h"
#include "tune/halving.h"
#include "tune/op_case.h"

namespace plait::tune {
namespace {

// A network may let a burst through at full speed, and TCP begins slowly: a first transfer, larger
// than a burst, is not counted. Those that are counted follow each other without a pause, in which
// the network might save up for another burst, and take about this time together. Before the first
// of them other programs may have had the processor long enough for a burst, so it is never alone.
constexpr double kTransfers = 15e6;  // ns
constexpr std::size_t kLeastTransfers = 3;
constexpr std::size_t kMostTransfers = 7;

constexpr std::size_t kFirstFloats = std::size_t{160} << 10;  // floats of all ranks together
constexpr std::size_t kMostFloats = std::size_t{4} << 20;

// If other programs took the processor in half of the transfers or more, these may have taken so
// many times as long: programs take turns, each a hundred times as long as the latency.
constexpr double kHalf = 0.5;
constexpr double kDelay = 5;
constexpr double kDelayOfShortOnes = 1000;

constexpr std::int64_t kProductRows = 64;
constexpr std::int64_t kProductSide = 512;

PlanKey product_key(Dtype dtype, int threads, const Communicator& comm) {
  PlanKey key = {.op = Operator::matmul, .m = kProductRows, .n = kProductSide, .k = kProductSide};
  key.x = key.out = dtype;
  key.weight = name(dtype);
  key.world = comm.world();
  key.threads = threads;
  return key;
}

// The shortest of some runs on this rank, and the usual one. The first finds cold caches.
struct ProductTime {
  double shortest;
  double usual;
};
ProductTime time_product(OpCase::Runner& product) {
  constexpr int kRuns = 6;
  ProductTime time = {.shortest = 0, .usual = 0};
  product.run();
  for (int run = 0; run < kRuns; ++run) {
    const base::Nanoseconds begin = base::now();
    product.run();
    const auto taken = static_cast<double>(base::now() - begin);
    time.shortest = run == 0 ? taken : std::min(time.shortest, taken);
    time.usual += taken / kRuns;
  }
  return time;
}

// How often other programs have taken the processor from this thread.
std::int64_t preemptions() {
  rusage used = {};
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_nivcsw;
}

class Probe {
 public:
  explicit Probe(Communicator& comm) : comm_(comm) {}

  // Every rank sends so many floats to every other, so many times one after the other.
  Transfers transfers(std::size_t floats, std::size_t times) {
    struct {
      std::array<float, kMostTransfers> taken;
      float delayed;
    } mine = {};
    const Elements everything = place_for(floats);
    barrier(comm_);
    base::Nanoseconds begin = base::now();
    std::int64_t preempted = preemptions();
    for (std::size_t i = 0; i < times; ++i) {
      all_gather({mine_.data(), floats}, everything, comm_);
      const base::Nanoseconds end = base::now();
      mine.taken.at(i) = static_cast<float>(end - std::exchange(begin, end));
      const std::int64_t now = preemptions();
      if (now != std::exchange(preempted, now)) ++mine.delayed;
    }
    Transfers all = {.times = std::vector<double>(times)};
    for (const auto& of_rank : comm::gather_values(mine, comm_)) {
      for (std::size_t i = 0; i < times; ++i)
        all.times[i] = std::max(all.times[i], double{of_rank.taken.at(i)});
      all.delayed = std::max(all.delayed, double{of_rank.delayed} / static_cast<double>(times));
    }
    return all;
  }

  // The time that such a transfer takes from a processor that multiplies meanwhile, for each byte
  // that it sends or receives: the time that is missing for the products made until it has ended.
  double processor(std::size_t floats, OpCase::Runner& product) {
    const Elements everything = place_for(floats);
    const double one = time_product(product).usual;
    barrier(comm_);
    const base::Nanoseconds begin = base::now();
    Pending pending = start_all_gather({mine_.data(), floats}, everything, comm_);
    double multiplied = 0;
    while (!pending.done()) {
      product.run();
      multiplied += one;
    }
    const double lost = static_cast<double>(base::now() - begin) - multiplied;
    const auto peers = static_cast<double>(comm_.world() - 1);
    return lost / (2 * peers * static_cast<double>(floats * sizeof(float)));
  }

  std::size_t share(std::size_t floats) const {
    return std::max<std::size_t>(floats / static_cast<std::size_t>(comm_.world()), 1);
  }

 private:
  // Only as much memory as is needed: a page's first use takes as long as half a page's transfer.
  Elements place_for(std::size_t floats) {
    const std::size_t count = floats * static_cast<std::size_t>(comm_.world());
    if (mine_.size() < floats) mine_.resize(floats);
    if (all_.size() < count) all_.resize(count);
    return {all_.data(), count};
  }

  Communicator& comm_;
  std::vector<float> mine_;
  std::vector<float> all_;
};

// Steps of nearly equal ratios in each power of ten, to its end.
constexpr std::array<double, 7> kHalves = {1, 1.5, 2.2, 3.3, 4.7, 6.8, 10};
constexpr std::array<double, 4> kDoubles = {1, 2.2, 4.7, 10};

double stepped(double value, std::span<const double> steps) {
  const double decade = std::pow(10.0, std::floor(std::log10(value)));
  double nearest = steps.front();
  for (const double step : steps) {
    if (std::abs(std::log(value / (decade * step))) <
        std::abs(std::log(value / (decade * nearest))))
      nearest = step;
  }
  return decade * nearest;
}

// The ends of the network, of all hosts: a third one may be farther away than the second.
std::string link_name(const Communicator& comm) {
  std::vector<std::string> routes;
  for (int peer = 1; peer < comm.world(); ++peer) routes.push_back(comm.state().route_to(peer));
  return base::sentence(base::show_count(comm.world(), "rank"), " on ",
                        base::show_count(comm.state().hosts(), "host"), ", ",
                        plan::ends_of(routes));
}

// If the file can't be read, only the comparison with it is lost; if it can't be written, the next
// run compares with the same figures.
plan::TransportFigures keep_link(const std::string& cache, const std::string& name,
                                 const plan::MeasuredLink& measured) {
  plan::TransportFigures counts = measured.figures;
  try {
    plan::change_text(plan::links_path(cache), [&](std::string_view text) {
      plan::KnownLinks links = plan::parse_links(text);
      counts = plan::add(links, name, measured);
      return plan::text_of(links);
    });
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): see above
  }
  return counts;
}

// Kept with the communicator, whose ranks measure alike.
struct Measured {
  int threads;
  plan::MeasuredLink network;
};

// How many times as long as a fast one a slow one took, without the extreme quarters.
double slow_over_fast(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const std::size_t quarter = times.size() / 4;
  return times[times.size() - 1 - quarter] / std::max(times[quarter], 1.0);
}

}  // namespace

plan::MeasuredLink link_of(const LinkSamples& samples) {
  const auto& [short_ones, long_ones, bytes] = samples;
  const double latency = *std::min_element(short_ones.times.begin(), short_ones.times.end());
  const double taken = median(long_ones.times);
  const double on_the_way = std::max(taken - latency, taken / 2);
  return {.figures = {.latency = latency, .bytes_per_ns = bytes / on_the_way},
          .rate_spread = long_ones.delayed < kHalf ? slow_over_fast(long_ones.times) : kDelay,
          .latency_spread = short_ones.delayed < kHalf
                                ? median(short_ones.times) / std::max(latency, 1.0)
                                : kDelayOfShortOnes};
}

plan::MeasuredLink measure_network(Communicator& comm, int threads) {
  Probe probe(comm);
  constexpr int kRuns = 9;
  LinkSamples samples;
  for (int run = 0; run < kRuns; ++run) {
    const Transfers one = probe.transfers(1, 1);
    samples.short_ones.times.push_back(one.times.front());
    samples.short_ones.delayed += one.delayed / kRuns;
  }
  const std::size_t least = probe.share(kFirstFloats);
  const double first = probe.transfers(least, 1).times.front();
  const double wanted =
      static_cast<double>(least) * kTransfers / static_cast<double>(kMostTransfers) / first;
  const std::size_t floats =
      std::clamp(static_cast<std::size_t>(wanted), least, probe.share(kMostFloats));
  const auto count =
      std::clamp(static_cast<std::size_t>(kTransfers / first), kLeastTransfers, kMostTransfers);
  samples.long_ones = probe.transfers(floats, count);
  samples.bytes = static_cast<double>(floats * sizeof(float));
  plan::MeasuredLink link = link_of(samples);
  plan::TransportFigures& network = link.figures;
  network.name = std::string(comm.transport());
  const OpCase one({.key = product_key(Dtype::f32, threads, comm)}, comm);
  const auto product = one.product(comm);
  constexpr double kMostProcessor = 2;  // ns for a byte; more is another program's time
  network.processor = kMostProcessor;
  for (int run = 0; run < 2; ++run) {
    // It is less than 0 if another program disturbed the products that it is compared with.
    const double once = slowest(probe.processor(floats, *product), comm);
    if (once > 0) network.processor = std::min(network.processor, once);
  }
  link.has_processor = network.processor < kMostProcessor;
  if (!link.has_processor) network.processor = plan::kUsualProcessor;
  return link;
}

plan::TransportFigures known_network(Communicator& comm, int threads, const std::string& cache,
                                     Known known) {
  std::shared_ptr<void>& kept = comm.state().kept(typeid(Measured));
  const auto* before = static_cast<const Measured*>(kept.get());
  if (before == nullptr || before->threads != threads || known == Known::has_changed)
    kept = std::make_shared<Measured>(Measured{threads, measure_network(comm, threads)});
  const plan::MeasuredLink& measured = static_cast<const Measured*>(kept.get())->network;
  plan::TransportFigures network = measured.figures;
  struct Stored {
    double latency, bytes_per_ns, processor;
  };
  if (!cache.empty() && comm.rank() == 0) network = keep_link(cache, link_name(comm), measured);
  Stored stored = {.latency = network.latency,
                   .bytes_per_ns = network.bytes_per_ns,
                   .processor = network.processor};
  stored = comm::gather_values(stored, comm).front();
  network.latency = stored.latency;
  network.bytes_per_ns = stored.bytes_per_ns;
  network.processor = stored.processor;
  return network;
}

void measure_products(plan::MachineProfile& profile, Communicator& comm) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const PlanKey key = product_key(dtype, profile.threads, comm);
    const OpCase one({.key = key}, comm);
    const auto product = one.product(comm);
    const double taken = slowest(time_product(*product).shortest, comm);
    const double faster =
        profile.product({.rows = kProductRows, .columns = kProductSide, .k = kProductSide}, key) /
        taken;
    // Quantised weights are multiplied in bf16.
    for (plan::ProductRate& rate : profile.products) {
      if ((rate.kind == "f32") == (dtype == Dtype::f32)) rate.flops_per_ns *= faster;
    }
  }
}

Link about(const plan::TransportFigures& network) {
  return {
      .bytes_per_second = std::round(stepped(network.bytes_per_ns * 8e9, kHalves) / 8),  // of bits
      .latency_ns = std::llround(stepped(std::max(network.latency, 1e3), kDoubles))};
}

}  // namespace plait::tune
