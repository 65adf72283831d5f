// plait tune: measures the fastest plans on this machine for the given problems.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/function_ref.h"
#include "base/parallel.h"
#include "base/text.h"
#include "cli/as_ranks.h"
#include "cli/console.h"
#include "cli/output_files.h"
#include "cli/tune/report.h"
#include "cli/tune/tune_options.h"
#include "cli/verbs.h"
#include "comm/session/state.h"
#include "measure/collective_check.h"
#include "measure/exchange_case.h"
#include "measure/op_setup.h"
#include "measure/progress.h"
#include "ops/shapes.h"
#include "plan/cache.h"
#include "plan/machine.h"
#include "tune/agree.h"
#include "tune/measure_profile.h"
#include "tune/network.h"
#include "tune/tuner.h"

namespace plait::cli {
namespace {

// One run on one rank. Rank 0 reads, writes and prints.
class Tuning {
 public:
  Tuning(const TuneOptions& options, Communicator& comm)
      : options_(options), comm_(comm), found_(plan::machine_fingerprint()) {}

  int run() try {
    if (const auto refusal = measure::refusal_of_all(comm_, [&] { check(); }))
      return exit_status(*refusal);
    const plan::CostModel model(profile());
    if (options_.profile_only) {
      on_rank_0([&] { report(model.profile()); });
      return kDone;
    }
    if (comm_.hosts() > 1) {
      const int threads = tune::least(base::thread_count(options_.threads), comm_);
      network_ = tune::about(tune::known_network(comm_, threads, options_.cache));
    }
    measure_all(open_problems(), model);
    on_rank_0([&] { report(); });
    return kDone;
  } catch (const FailureOfRank0& failure) {
    return exit_status(failure.code);
  }

 private:
  // Thrown on the other ranks when rank 0 throws an Error, which has the reason.
  struct FailureOfRank0 : std::exception {
    explicit FailureOfRank0(Code one) : code(one) {}
    Code code;
  };

  // Collective: if rank 0 fails, all ranks do, so that none waits for it.
  void on_rank_0(base::FunctionRef<void()> what) const {
    const auto failure = measure::refusal_of_all(comm_, [&] {
      if (comm_.rank() == 0) what();
    });
    if (failure) throw FailureOfRank0(*failure);
  }

  void measure_all(const std::vector<PlanKey>& problems, const plan::CostModel& model) {
    measure::Progress progress(comm_.rank() == 0 ? "tuning, percent" : "");
    for (std::size_t i = 0; i < problems.size(); ++i) {
      tune::TuneEffort effort = options_.effort;
      effort.progress = [&](double part) {
        const double done = (static_cast<double>(i) + part) / static_cast<double>(problems.size());
        progress.show(static_cast<std::int64_t>(100 * done), 100);
      };
      const tune::Tuned tuned = problems[i].family != Family::operators
                                    ? tune_exchange(problems[i], model, effort)
                                    : tune_problem(problems[i], model, effort, comm_);
      on_rank_0([&] { keep(tuned); });
    }
  }

  // A layer of experts is that of a model, of which the key has the sizes.
  const measure::ExpertsModel& experts_of(const PlanKey& key) const {
    return *std::find_if(options_.experts.models.begin(), options_.experts.models.end(),
                         [&](const measure::ExpertsModel& one) {
                           const ExpertsDesc desc = measure::describe(one, key.x);
                           return desc.experts == key.columns && desc.hidden == key.k &&
                                  desc.inner == key.n && desc.top == key.m;
                         });
  }

  measure::ExpertsSetup experts_setup(const PlanKey& key) const {
    measure::ExpertsSetup setup = options_.experts;
    setup.replicated = is_compute_first(key.op);
    setup.x = key.x;
    setup.threads = key.threads;
    setup.backend = key.backend;
    return setup;
  }

  tune::Tuned tune_exchange(const PlanKey& key, const plan::CostModel& model,
                            const tune::TuneEffort& effort) const {
    Communicator over = comm_.with_link(key.link);
    const std::vector<Plan> plans = tune::shortlist(model, key, effort.plans);
    if (key.family == Family::experts) {
      const auto run = measure::experts_calls(experts_setup(key), experts_of(key), plans, over);
      return tune_plans(key, plans, run, effort, comm_);
    }
    const measure::OpSetup setup = {.sizes = {},
                                    .x = key.x,
                                    .out = key.out,
                                    .weight = key.weight,
                                    .ranks = key.world,
                                    .transport = key.transport,
                                    .link = {},
                                    .threads = key.threads,
                                    .backend = key.backend,
                                    .plans = {},
                                    .effort = {}};
    measure::ExchangeSetup heads = options_.heads;
    heads.family = key.family;
    heads.product_first = is_compute_first(key.op);
    const measure::ExchangeCase one(setup, heads, {key.m, key.n, key.k}, comm_);
    const auto run = [&](std::size_t i) { one.runner(plans[i], over)->run(); };
    return tune_plans(key, plans, run, effort, comm_);
  }

  // Check before any rank allocates memory or spends time.
  void check() const {
    if (comm_.rank() == 0) {
      if (options_.profile_only) {
        plan::check_place(plan::profile_path(options_.cache));
      } else {
        check_cache();
      }
      check_writable(options_.files);
    }
    for (PlanKey key : options_.problems) {
      check_hosts(key);
      settle(key);
      if (key.family == Family::experts) {
        measure::check_memory(experts_setup(key), experts_of(key));
      } else {
        measure::check_memory(key);
      }
    }
  }

  // Sets what follows from the ranks that there are.
  void settle(PlanKey& key) const {
    key.world = comm_.world();
    key.wire = wire_of(key);
    if (key.family == Family::ulysses || key.family == Family::columns)
      key.columns = measure::most_columns(key, options_.heads);
  }

  // The wire that a program has here if it does not ask for another.
  Dtype wire_of(const PlanKey& key) const {
    if (key.family != Family::operators) return key.x;
    return ops::wire_of(key.op, key.x, key.wire, comm_.state().hosts());
  }

  // Refuses problems of another number of hosts, because plans measured on one host would be stored
  // as plans of several, or the reverse.
  void check_hosts(const PlanKey& key) const {
    const int hosts = comm_.state().hosts();
    PLAIT_CHECK(options_.from.empty() || key.hosts == hosts, "--from ", options_.from,
                " has problems of ranks on ", base::show_count(key.hosts, "host"),
                ", but these ranks run on ", hosts,
                "; start plait tune on the same number of hosts");
  }

  // Reports errors of the cache file early, and leaves nothing behind, since the run may still be
  // refused.
  void check_cache() const try {
    plan::load_cache(options_.cache, found_.machine());
    plan::check_place(options_.cache);
  } catch (const Error& error) {
    if (error.code() != Code::invalid_argument) throw;
    base::fail(error.code(), error.what(), "; delete it, or choose another file with --cache FILE");
  }

  // The text of the profile, if the file has one of this machine.
  std::optional<std::string> known_profile(const std::string& path) const try {
    const auto there = plan::load_profile(path, found_.machine());
    return there ? std::optional(plan::text_of(*there)) : std::nullopt;
  } catch (const Error& error) {
    // A profile of another machine, or a broken one, is replaced. A file that can't be read can't
    // be replaced either.
    if (error.code() != Code::invalid_argument) throw;
    fmt::print(stderr, "plait tune: measuring the profile again: {}\n", error.what());
    return std::nullopt;
  }

  // The stored profile; if there is none, measures one and stores it.
  plan::MachineProfile profile() const {
    const std::string path = plan::profile_path(options_.cache);
    std::optional<std::string> known;
    on_rank_0([&] {
      if (!options_.profile_only) known = known_profile(path);
    });
    const auto agreed = tune::agree_on("profiles of their machine", known, comm_);
    if (agreed) return plan::parse_profile(*agreed);
    measure::Progress progress(comm_.rank() == 0 ? "measuring the machine, figure" : "");
    // figures of the machine must not include a link
    Communicator bare = comm_.with_link(std::nullopt);
    plan::MachineProfile measured = tune::measure_profile(
        bare, {.threads = options_.threads,
               .longest = options_.longest_figure,
               .progress = [&](int done, int total) { progress.show(done, total); }});
    on_rank_0([&] {
      plan::write_text(path, plan::text_of(measured));
      if (is_disturbed(measured) && !options_.profile_only) {
        complain(
            "plait tune",
            "other programs disturbed the measurement of the machine's profile: repeat it with "
            "plait tune --profile when the machine is quiet");
      }
    });
    return measured;
  }

  // The problems with the properties of the ranks. With --missing, without those that have plans.
  std::vector<PlanKey> open_problems() const {
    const int threads = tune::least(base::thread_count(options_.threads), comm_);
    std::vector<PlanKey> problems = options_.problems;
    for (PlanKey& key : problems) {
      settle(key);
      key.hosts = comm_.state().hosts();
      key.threads = threads;
      key.transport = comm_.transport();
      // programs that run with PLAIT_LINK use it in their keys
      if (!key.link) key.link = comm_.link();
    }
    if (!options_.missing) return problems;
    std::optional<std::string> known;
    on_rank_0([&] {
      const auto cache = plan::load_cache(options_.cache, found_.machine());
      known = cache.value_or(plan::PlanCache(found_.machine())).text();
    });
    const auto agreed = tune::agree_on("plan caches", known, comm_);
    if (!agreed) return problems;
    const plan::PlanCache there = plan::PlanCache::parse(*agreed);
    std::erase_if(problems,
                  [&](const PlanKey& key) { return there.find(as_kept(key)).has_value(); });
    return problems;
  }

  // Between hosts the network belongs to the problem: with another one, other plans are fast.
  PlanKey as_kept(PlanKey key) const {
    if (network_) key.link = network_;
    return key;
  }

  // Stores each plan at once, so that an interruption loses only the current problem.
  void keep(const tune::Tuned& tuned) {
    const plan::PlanCache::Entry entry = {
        .plan = tuned.plan, .nanoseconds = tuned.nanoseconds, .serial = tuned.serial};
    const PlanKey key = as_kept(tuned.key);
    found_.add(key, entry);
    plan::PlanCache one(found_.machine());
    one.add(key, entry);
    plan::save_cache(options_.cache, one);
  }

  void report(const plan::MachineProfile& profile) const {
    if (!options_.files.silences()) answer(show_profile(profile));
  }

  void report() const {
    if (!options_.files.silences()) {
      answer(found_.entries().empty() ? "All plans are in " + options_.cache + " already.\n"
                                      : show_plans(found_) + "Stored in " + options_.cache + "\n");
    }
    options_.files.write_json(plans_json(found_, options_.cache));
  }

  const TuneOptions& options_;
  Communicator& comm_;
  plan::PlanCache found_;
  std::optional<Link> network_ = {};  // between the hosts of the ranks, measured
};

int show(const TuneOptions& options) {
  const auto cache = plan::load_cache(options.cache, plan::machine_fingerprint());
  if (!options.files.silences()) {
    answer(cache ? show_plans(*cache) : "There are no plans in " + options.cache + " yet.\n");
    if (const auto profile =
            plan::load_profile(plan::profile_path(options.cache), plan::machine_fingerprint()))
      answer("\n" + show_profile(*profile));
  }
  options.files.write_json(
      plans_json(cache.value_or(plan::PlanCache(plan::machine_fingerprint())), options.cache));
  return kDone;
}

}  // namespace

int tune(Words words) {
  const auto options = read_tune_options(words);
  if (!options) return kDone;
  if (options->show) return show(*options);
  std::vector<std::string> whole = {"tune"};
  whole.insert(whole.end(), words.begin(), words.end());
  const int status = as_ranks({.ranks = options->ranks, .transport = options->transport}, whole,
                              [&](Communicator& comm) { return Tuning(*options, comm).run(); });
  if (was_told_to_end(status) && !options->profile_only) {
    complain("plait tune", "plans measured so far are kept in " + options->cache +
                               "; --missing measures the others");
  }
  return status;
}

}  // namespace plait::cli
