#include "measure/step_measure.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/parallel.h"
#include "comm/session/gather.h"
#include "measure/collective_race.h"
#include "measure/limits.h"
#include "measure/link_search.h"
#include "measure/peak.h"
#include "measure/progress.h"
#include "measure/step_case.h"

namespace plait::measure {
namespace {

constexpr int kMostTurns = 6;
constexpr Effort kFew = {.repetitions = 5, .lasting = 0};
constexpr Effort kMore = {.repetitions = 15, .lasting = 0};
constexpr double kCloseEnough = 0.03;
constexpr double kFarOff = 0.1;
constexpr int kMostCorrections = 2;
// The longest loop, whose records must have room in a trace.
constexpr int kMostSteps = 20;
constexpr int kMostCalls = 1600;

// The ratio of communication to products, from communication's share of both.
double ratio_of(double share) { return share / (1 - share); }

double median_of(const std::function<void()>& call, Communicator& comm) {
  CollectiveRace race(comm, kFew);
  race.add(call);
  return race.run().front().median;
}

Communicator alone(Communicator& comm) {
  std::optional<Communicator> group = comm.split(comm.rank(), 0);
  PLAIT_CHECK(group, "rank ", comm.rank(), " has no group of its own");
  return std::move(*group);
}

class Measuring {
 public:
  Measuring(const StepSetup& setup, Communicator& comm)
      : setup_(setup), comm_(comm), case_(setup, comm), alone_(alone(comm)) {
    products_ = case_.products(alone_);
    const double products = median_of([&] { products_->run(0); }, comm_);
    pause_ = static_cast<base::Nanoseconds>(setup.stand_in * products / case_.pauses());
  }

  StepMeasurement run() {
    StepMeasurement result = {.ranks = comm_.world(),
                              .transport = std::string(comm_.transport()),
                              .link = find_link(),
                              .pause = pause_};
    case_.keep_results();  // so that its memory is allocated before memory is measured
    for (const Plan& plan : setup_.plans) result.plans.push_back(run_once(plan, result.link));
    race_at_share(result);
    return result;
  }

 private:
  // Finds a link over which communication takes about the requested share of the serial step. The
  // report has the measured share. Some communication in backward is hidden even in a serial step,
  // so the time is no simple function of the bytes.
  std::optional<Link> find_link() {
    if (setup_.link.share == 0) return setup_.link.link;
    const double ratio = ratio_of(setup_.link.share);
    const double products = median_of([&] { products_->run(pause_); }, comm_);
    LinkSearch search(case_.bytes_on_link() / (products * ratio) * 1e9);
    Progress progress(comm_.rank() == 0 ? "looking for a link" : "");
    for (int turn = 0; turn < kMostTurns && search.off() > kCloseEnough; ++turn) {
      progress.show(turn + 1, kMostTurns);
      search.take(communication(link_of(search.next()), kFew) / ratio);
      // One of a few repetitions may have been lucky, so measure again.
      if (search.off() <= kCloseEnough)
        search.take_again(communication(link_of(search.best()), kMore) / ratio);
    }
    return link_of(search.best());
  }

  // How much longer the serial step takes over a link than its products, as a share. The two are
  // measured in turns, so that a machine that slows down slows both.
  double communication(const Link& link, const Effort& effort) {
    Communicator linked = comm_.with_link(link);
    const auto serial = case_.runner(setup_.plans.front(), linked);
    CollectiveRace race(comm_, effort);
    race.add([&] { products_->run(pause_); });
    race.add([&] { serial->run(pause_); });
    const std::vector<Times> times = race.run();
    return times[1].median / times[0].median - 1;
  }

  // The search ran a minute ago, so its result may be off during the race.
  void race_at_share(StepMeasurement& result) {
    if (setup_.link.share == 0) return race(result);
    const double wanted = ratio_of(setup_.link.share);
    result.link = settle(*result.link, kMostCorrections, [&](const Link& link) {
      result.link = link;
      race(result);
      const double measured = ratio_of(result.comm_share());
      return result.misses(setup_.link.share) ? std::optional(measured / wanted) : std::nullopt;
    });
  }

  // Runs a plan once, for its memory and its bits, before the other plans allocate anything.
  StepTimes run_once(const Plan& plan, const std::optional<Link>& link) {
    StepTimes result = {.plan = plan};
    Communicator over = comm_.with_link(link);
    const auto runner = case_.runner(plan, over);
    case_.clear_results();
    const bool counts = forget_peak();
    runner->run(0);
    const auto peak = static_cast<float>(counts ? read_peak().value_or(0) : 0);
    const std::vector<float> peaks = comm::gather_values(peak, comm_);
    result.peak = static_cast<std::int64_t>(*std::max_element(peaks.begin(), peaks.end()));
    if (plan == setup_.plans.front()) case_.keep_results();
    const std::vector<float> differing =
        comm::gather_values(case_.has_same_results() ? 0.0F : 1.0F, comm_);
    result.bits_equal = std::count(differing.begin(), differing.end(), 1.0F) == 0;
    return result;
  }

  void race(StepMeasurement& result) {
    std::vector<std::unique_ptr<Communicator>> links;
    std::vector<std::unique_ptr<StepCase::Runner>> runners;
    std::vector<std::vector<double>> forwards(setup_.plans.size());
    CollectiveRace race(comm_, setup_.effort);
    race.add([this] { products_->run(pause_); });
    for (const Plan& plan : setup_.plans) {
      links.push_back(std::make_unique<Communicator>(comm_.with_link(result.link)));
      runners.push_back(case_.runner(plan, *links.back()));
      race.add([this, &runner = *runners.back(), &forward = forwards[runners.size() - 1]] {
        runner.run(pause_);
        forward.push_back(static_cast<double>(runner.forward_time()));
      });
    }
    double read = 0;
    if (setup_.decodes) {
      const Limit limit = reading(static_cast<std::size_t>(case_.weight_bytes()),
                                  base::thread_count(setup_.threads));
      race.add(limit.call);
      read = limit.amount;
    }
    const std::vector<Times> times = race.run();
    result.products = times.front();
    if (setup_.decodes) result.reading = read / times.back().median;
    for (std::size_t i = 0; i < result.plans.size(); ++i) {
      result.plans[i].times = times[i + 1];
      result.plans[i].forward = summarize(forwards[i], 1).median;
    }
  }

  const StepSetup& setup_;
  Communicator& comm_;
  StepCase case_;
  Communicator alone_;
  std::unique_ptr<StepCase::Runner> products_;
  base::Nanoseconds pause_ = 0;
};

}  // namespace

bool StepMeasurement::misses(double share) const {
  return std::abs(comm_share() - share) > kFarOff * share;
}

const StepTimes& StepMeasurement::fastest() const {
  return *std::min_element(plans.begin(), plans.end(), [](const StepTimes& a, const StepTimes& b) {
    return a.times.median < b.times.median;
  });
}

StepMeasurement measure(const StepSetup& setup, Communicator& comm) {
  return Measuring(setup, comm).run();
}

Recorded record(const StepSetup& setup, const StepMeasurement& result, Communicator& comm) {
  Recording recording(comm);
  const StepCase one(setup, comm);
  {
    Communicator traced = comm.with_link(result.link);
    for (const Plan& plan : setup.plans) {
      const auto runner = one.runner(plan, traced);
      runner->run(0);  // so that it is as warm as the measured runs
      recording.run(name(plan), [&] { runner->run(result.pause); });
    }
  }
  return recording.collect();
}

int steps_of_loop(const StepSetup& setup) {
  const int calls = static_cast<int>(setup.linears.size()) * setup.layers;
  return std::clamp(kMostCalls / calls, 1, kMostSteps);
}

Recorded record_loop(const StepSetup& setup, const StepMeasurement& result, Communicator& comm) {
  const Plan& plan = result.fastest().plan;
  Recording recording(comm);
  const StepCase steps(setup, comm);
  {
    Communicator traced = comm.with_link(result.link);
    const auto runner = steps.runner(plan, traced);
    runner->run(0);
    recording.run(name(plan), [&] {
      for (int i = steps_of_loop(setup); i > 0; --i) runner->run(result.pause);
    });
  }
  return recording.collect();
}

}  // namespace plait::measure
