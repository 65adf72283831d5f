// The sources of automatic plans, in their order: measured plans, plans being measured, and the
// cost model.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/default_floats.h"
#include "base/host.h"
#include "base/parallel.h"
#include "base/text.h"
#include "comm/session/gather.h"
#include "comm/session/state.h"
#include "plait/tune.h"
#include "plan/cache.h"
#include "plan/cost_model.h"
#include "plan/machine.h"
#include "tune/agree.h"
#include "tune/files.h"
#include "tune/network.h"
#include "tune/online.h"

namespace plait {
namespace {

class Automatic final : public PlanSource {
 public:
  struct Parts {
    plan::PlanCache cache;
    plan::MachineProfile profile;
    int threads;
    std::string path;  // empty: this rank does not store new plans
  };

  Automatic(Parts parts, bool online, Communicator& comm)
      : comm_(comm),
        cache_(std::move(parts.cache)),
        model_(std::move(parts.profile)),
        threads_(parts.threads),
        path_(std::move(parts.path)) {
    if (!online) return;
    online_ = std::make_unique<tune::Online>(
        comm, model_,
        tune::OnlineListener{
            .settled = [this](const PlanKey& key,
                              const plan::PlanCache::Entry& entry) { keep(key, entry); },
            .deviated = [this] { measure_network(tune::Known::has_changed); }});
  }

  // Collective, as the calls are in which a source measures.
  void measure_network(tune::Known known = tune::Known::as_before) const {
    if (comm_.state().hosts() == 1) return;
    plan::MachineProfile profile = model_.profile();
    profile.network = tune::known_network(comm_, threads_, path_, known);
    model_ = plan::CostModel(std::move(profile));
    known_.clear();
  }

  std::optional<Plan> find(const PlanKey& key) const override {
    const PlanKey whole = settled(key);
    const Known& known = known_of(whole);
    return known.is_tried ? online_->find(whole) : known.plan;
  }

  std::optional<Plan> next(const PlanKey& key) const override {
    const PlanKey whole = settled(key);
    const Known& known = known_of(whole);
    return known.is_tried ? online_->next(whole) : known.plan;
  }

  void took(const PlanKey& key, const Plan& plan, std::int64_t nanoseconds) const override {
    const PlanKey whole = settled(key);
    if (known_of(whole).is_tried) online_->took(whole, plan, nanoseconds);
  }

  std::optional<PlanReason> reason(const PlanKey& key) const override {
    const PlanKey whole = settled(key);
    Known& known = known_of(whole);
    if (!known.reason) {
      known.reason = model_.reason(whole);
      if (known.is_tried) known.of_shared = share_of_shared(whole);
    }
    if (const auto entry = decision(whole); entry && entry->serial > 0)
      return reason_of(*entry, known);
    if (known.reason && known.is_tried && online_->tries(whole))
      known.reason->sentence = "plans are being tried";
    return known.reason;
  }

 private:
  // A cached answer, because asking the model takes longer than a small product.
  struct Known {
    Plan plan;
    bool is_tried;  // trials decide, or have decided
    std::optional<PlanReason> reason = {};
    double of_shared = 1;  // its time, as a share of that of the problem whose trial it shares
  };
  static constexpr std::size_t kMostKnown = 8192;

  // A full cache is emptied. Only a program in which every problem is different fills it.
  Known& known_of(const PlanKey& key) const {
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    if (known_.size() == kMostKnown) known_.clear();
    const auto measured = measured_plan(key);
    const PlanKey shared = tune::shared_problem(key);
    const bool is_tried = online_ && key.world > 1 && key.family == Family::operators &&
                          traits_of(key.op).communicates() && (!measured || key == shared);
    if (is_tried && measured) online_->know(key, *measured);
    if (is_tried && key != shared) {
      if (const auto entry = measured_plan(shared)) online_->know(shared, *entry);
    }
    const Plan plan = measured ? measured->plan : is_tried ? Plan{} : model_.choose(key);
    return known_.emplace(key, Known{.plan = plan, .is_tried = is_tried}).first->second;
  }

  // The plan of this problem in the cache.
  std::optional<plan::PlanCache::Entry> measured_plan(const PlanKey& key) const {
    const auto found = cache_.entries().find(name(key));
    return found == cache_.entries().end() ? std::nullopt : std::optional(found->second);
  }

  std::optional<plan::PlanCache::Entry> decision(const PlanKey& key) const {
    if (online_ && known_of(key).is_tried) return online_->decision(key);
    return measured_plan(key);
  }

  double share_of_shared(const PlanKey& key) const {
    const PlanKey shared = tune::shared_problem(key);
    if (key == shared) return 1;
    const Plan serial = {.schedule = Schedule::serial};
    return model_.predict(key, serial).total / model_.predict(shared, serial).total;
  }

  static PlanReason reason_of(const plan::PlanCache::Entry& entry, const Known& known) {
    const double serial = static_cast<double>(entry.serial) * known.of_shared;
    const double taken = static_cast<double>(entry.nanoseconds) * known.of_shared;
    const double transfer = known.reason ? known.reason->transfer_ns : 0;
    const double gain = serial / std::max(taken, 1.0);
    if (gain < 1 && entry.plan.schedule != Schedule::serial) {
      return {.sentence = "times vary too much to tell, so it is the model's choice",
              .serial_ns = serial,
              .transfer_ns = transfer,
              .is_measured = true};
    }
    return {.sentence = entry.plan.schedule == Schedule::serial
                            ? "measured: no plan is clearly faster than serial"
                            : base::sentence("measured: ", base::show_factor(gain),
                                             " times as fast as serial, medians of ",
                                             base::show_duration(std::llround(taken)), " and ",
                                             base::show_duration(std::llround(serial))),
            .serial_ns = serial,
            .transfer_ns = transfer,
            .is_measured = true};
  }

  // All ranks use the same number of threads, even if one of them has another.
  PlanKey settled(PlanKey key) const {
    if (key.threads == 0) key.threads = threads_;
    if (const auto& network = model_.profile().network; network && key.hosts > 1)
      key.link = tune::about(*network);
    return key;
  }

  // Stores a new plan, and adds the plans that the ranks have agreed on: if only another host had a
  // file, this host's file would otherwise lack them. Entries that another process has written
  // meanwhile are kept. If the file can't be written, only the result is lost; the call succeeds.
  void keep(const PlanKey& key, const plan::PlanCache::Entry& entry) const noexcept try {
    cache_.add(key, entry);  // on all ranks, which must know the same
    if (path_.empty()) return;
    plan::PlanCache found(cache_.machine());
    found.add(key, entry);
    plan::save_cache(path_, found, cache_);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "automatic_plans: new plans are not stored: %s\n", error.what());
    path_.clear();
  }

  Communicator& comm_;
  mutable plan::PlanCache cache_;
  mutable plan::CostModel model_;
  int threads_;
  mutable std::string path_;
  std::unique_ptr<tune::Online> online_;  // null: plans are not tried
  mutable std::unordered_map<PlanKey, Known, plan::KeyHash> known_;
};

bool are_same(const std::optional<std::string>& mine, Communicator& comm) {
  const std::vector<std::string> all = comm::gather_text(mine.value_or(std::string()), comm);
  return std::all_of(all.begin(), all.end(), [&](const auto& one) { return one == all.front(); });
}

// Another process that tunes may have replaced a file while ranks were reading it. Therefore all
// ranks read again before they are said to have different files.
tune::Files read_alike(const AutomaticOptions& options, const std::string& machine,
                       Communicator& comm) {
  constexpr int kAttempts = 3;
  for (int attempt = 1;; ++attempt) {
    tune::Files files = tune::read_files(options, machine);
    if (!files.left_alone.empty() && comm.rank() == 0 && attempt == 1) {
      const std::string remark = base::sentence(
          "automatic_plans: plans are neither read nor stored: ", files.left_alone, '\n');
      std::fputs(remark.c_str(), stderr);
    }
    if (are_same(files.profile, comm) || attempt == kAttempts) return files;
  }
}

// The plans that any rank knows. Each host stores what its ranks have tried, with whichever others,
// so that files differ; of two plans for a problem, the one of the lowest rank counts.
plan::PlanCache merged(const std::optional<std::string>& mine, const std::string& machine,
                       Communicator& comm) {
  plan::PlanCache all(machine);
  for (const std::string& text : comm::gather_text(mine.value_or(std::string()), comm)) {
    if (!text.empty()) all.merge(plan::PlanCache::parse(text));
  }
  return all;
}

void check_refusals(const std::string& mine, Communicator& comm) {
  const std::vector<std::string> all = comm::gather_text(mine, comm);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    PLAIT_CHECK(all[rank].empty(), "automatic_plans: rank ", rank, ": ", all[rank]);
  }
}

// Returns the path on the first of the ranks that share this file, and an empty text on the others.
std::string kept_here(const std::string& path, Communicator& comm) {
  // Ranks of hosts that can't be told apart may have different files.
  const std::string host = base::host_id();
  const std::string file =
      base::sentence(host.empty() ? base::sentence("rank ", comm.rank()) : host, ' ',
                     base::namespace_id("mnt"), ' ', path);
  const std::vector<std::string> all = comm::gather_text(file, comm);
  const auto first = std::find(all.begin(), all.end(), file) - all.begin();
  return first == comm.rank() ? path : std::string();
}

}  // namespace

std::unique_ptr<PlanSource> automatic_plans(Communicator& comm, const AutomaticOptions& options) {
  const base::DefaultFloats floats;  // figures decide, which ranks must agree upon
  const std::string machine = plan::machine_fingerprint();
  const tune::Files files = read_alike(options, machine, comm);
  tune::agree_on("machines", machine, comm);
  check_refusals(files.refusal, comm);
  // Between hosts a plan is worth a few slower calls; on one host there is little to gain.
  const bool online = files.online.value_or(comm.state().hosts() > 1);
  tune::agree_on("settings of tune_online", online ? "yes" : "no", comm);
  plan::PlanCache cache = merged(files.cache, machine, comm);
  const auto profile = tune::agree_on("profiles of their machine", files.profile, comm);
  const int threads = tune::least(base::thread_count(0), comm);
  plan::MachineProfile machine_profile =
      profile ? plan::parse_profile(*profile) : plan::built_in_profile();
  if (!profile && comm.state().hosts() > 1) tune::measure_products(machine_profile, comm);
  auto plans = std::make_unique<Automatic>(Automatic::Parts{.cache = std::move(cache),
                                                            .profile = std::move(machine_profile),
                                                            .threads = threads,
                                                            .path = kept_here(files.path, comm)},
                                           online, comm);
  plans->measure_network();
  return plans;
}

}  // namespace plait
