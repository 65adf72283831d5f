#include "cli/bench/step_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "cli/bench/collective_race.h"
#include "cli/bench/link_search.h"
#include "cli/bench/progress.h"
#include "cli/bench/step_case.h"
#include "cli/bench/step_report.h"
#include "cli/console.h"
#include "cli/host/peak.h"
#include "plait/collectives.h"
#include "plait/trace.h"
#include "report/page.h"
#include "report/picture.h"

namespace plait::cli {
namespace {

constexpr int kMostTurns = 6;
constexpr Effort kFew = {.repetitions = 5, .lasting = 0};
constexpr Effort kMore = {.repetitions = 15, .lasting = 0};
constexpr double kCloseEnough = 0.03;
constexpr double kFarOff = 0.1;
constexpr int kMostCorrections = 2;

// The ratio of communication to products, from communication's share of both.
double ratio_of(double share) { return share / (1 - share); }

double median_of(const std::function<void()>& call, Communicator& comm) {
  CollectiveRace race(comm, kFew);
  race.add(call);
  return race.run().front().median;
}

std::vector<float> of_all(float mine, Communicator& comm) {
  std::vector<float> all(static_cast<std::size_t>(comm.world()));
  all_gather({&mine, 1}, {all.data(), all.size()}, comm);
  return all;
}

Communicator alone(Communicator& comm) {
  std::optional<Communicator> group = comm.split(comm.rank(), 0);
  PLAIT_CHECK(group, "rank ", comm.rank(), " has no group of its own");
  return std::move(*group);
}

class Measuring {
 public:
  Measuring(const StepOptions& options, Communicator& comm)
      : options_(options), comm_(comm), case_(options, comm), alone_(alone(comm)) {
    products_ = case_.products(alone_);
    const double products = median_of([&] { products_->run(0); }, comm_);
    pause_ = static_cast<base::Nanoseconds>(options.stand_in * products / case_.pauses());
  }

  StepMeasurement run() {
    StepMeasurement result = {.ranks = comm_.world(),
                              .transport = std::string(comm_.transport()),
                              .link = find_link(),
                              .pause = pause_,
                              .products = {},
                              .plans = {}};
    case_.keep_results();  // so that its memory is allocated before memory is measured
    for (const Plan& plan : options_.plans) result.plans.push_back(run_once(plan, result.link));
    race_at_share(result);
    return result;
  }

 private:
  // Finds a link over which communication takes about the requested share of the serial step. The
  // report has the measured share. Some communication in backward is hidden even in a serial step,
  // so the time is no simple function of the bytes.
  std::optional<Link> find_link() {
    if (options_.link.share == 0) return options_.link.link;
    const double ratio = ratio_of(options_.link.share);
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
    const auto serial = case_.runner(options_.plans.front(), linked);
    CollectiveRace race(comm_, effort);
    race.add([&] { products_->run(pause_); });
    race.add([&] { serial->run(pause_); });
    const std::vector<Times> times = race.run();
    return times[1].median / times[0].median - 1;
  }

  // The search ran a minute ago, so its result may be off during the race.
  void race_at_share(StepMeasurement& result) {
    if (options_.link.share == 0) return race(result);
    const double wanted = ratio_of(options_.link.share);
    result.link = settle(*result.link, kMostCorrections, [&](const Link& link) {
      result.link = link;
      race(result);
      const double measured = ratio_of(result.comm_share());
      return is_far_off(result) ? std::optional(measured / wanted) : std::nullopt;
    });
    complain_of_share(result);
  }

  bool is_far_off(const StepMeasurement& result) const {
    const double wanted = options_.link.share;
    return std::abs(result.comm_share() - wanted) > kFarOff * wanted;
  }

  void complain_of_share(const StepMeasurement& result) const {
    const double share = result.comm_share();
    const double wanted = options_.link.share;
    if (comm_.rank() != 0 || !is_far_off(result)) return;
    complain("plait bench", fmt::format("no link was found that makes communication a share of "
                                        "{:g}: it is {:.3f} of the serial step",
                                        wanted, share));
  }

  // Runs a plan once, for its memory and its bits, before the other plans allocate anything.
  StepTimes run_once(const Plan& plan, const std::optional<Link>& link) {
    StepTimes result = {.plan = plan, .times = {}};
    Communicator over = comm_.with_link(link);
    const auto runner = case_.runner(plan, over);
    case_.clear_results();
    const bool counts = forget_peak();
    runner->run(0);
    const auto peak = static_cast<float>(counts ? read_peak().value_or(0) : 0);
    const std::vector<float> peaks = of_all(peak, comm_);
    result.peak = static_cast<std::int64_t>(*std::max_element(peaks.begin(), peaks.end()));
    if (plan == options_.plans.front()) case_.keep_results();
    const std::vector<float> differing = of_all(case_.has_same_results() ? 0.0F : 1.0F, comm_);
    result.bits_equal = std::count(differing.begin(), differing.end(), 1.0F) == 0;
    return result;
  }

  void race(StepMeasurement& result) {
    std::vector<std::unique_ptr<Communicator>> links;
    std::vector<std::unique_ptr<StepCase::Runner>> runners;
    std::vector<std::vector<double>> forwards(options_.plans.size());
    CollectiveRace race(comm_, options_.effort);
    race.add([this] { products_->run(pause_); });
    for (const Plan& plan : options_.plans) {
      links.push_back(std::make_unique<Communicator>(comm_.with_link(result.link)));
      runners.push_back(case_.runner(plan, *links.back()));
      race.add([this, &runner = *runners.back(), &forward = forwards[runners.size() - 1]] {
        runner.run(pause_);
        forward.push_back(static_cast<double>(runner.forward_time()));
      });
    }
    const std::vector<Times> times = race.run();
    result.products = times.front();
    for (std::size_t i = 0; i < result.plans.size(); ++i) {
      result.plans[i].times = times[i + 1];
      result.plans[i].forward = summarize(forwards[i], 1).median;
    }
  }

  const StepOptions& options_;
  Communicator& comm_;
  StepCase case_;
  Communicator alone_;
  std::unique_ptr<StepCase::Runner> products_;
  base::Nanoseconds pause_ = 0;
};

}  // namespace

StepMeasurement measure(const StepOptions& options, Communicator& comm) {
  return Measuring(options, comm).run();
}

Recorded record(const StepOptions& options, const StepMeasurement& result, Communicator& comm) {
  if (!options.files.traces()) return {};
  Recording recording(comm);
  const StepCase one(options, comm);
  {
    Communicator traced = comm.with_link(result.link);
    for (const Plan& plan : options.plans) {
      const auto runner = one.runner(plan, traced);
      runner->run(0);  // so that it is as warm as the measured runs
      recording.run(name(plan), [&] { runner->run(result.pause); });
    }
  }
  return recording.collect();
}

void write_timelines(const StepOptions& options, const StepMeasurement& result,
                     const Recorded& recorded) {
  if (!options.files.trace.empty()) write_json(options.files.trace, recorded.packs);
  if (!options.files.draws()) return;
  report::Timeline timeline = {.title = show_step(options),
                               .subtitle = show_place(result),
                               .product = static_cast<std::int64_t>(result.products.median),
                               .collective = 0,
                               .runs = {}};
  for (std::size_t i = 0; i < options.plans.size(); ++i)
    timeline.runs.push_back(
        report::run_of(name(options.plans[i]), recorded.ranks, recorded.runs[i]));
  if (!options.files.html.empty()) write_file(options.files.html, report::page(timeline));
  if (!options.files.svg.empty()) write_file(options.files.svg, report::picture_file(timeline));
}

}  // namespace plait::cli
