// The sources of automatic plans, in their order: measured plans, plans being measured, and the
// cost model.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/host.h"
#include "base/parallel.h"
#include "comm/gather.h"
#include "plait/tune.h"
#include "plan/cache.h"
#include "plan/cost_model.h"
#include "plan/machine.h"
#include "tune/agree.h"
#include "tune/files.h"
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
      : cache_(std::move(parts.cache)),
        model_(std::move(parts.profile)),
        threads_(parts.threads),
        path_(std::move(parts.path)) {
    if (!online) return;
    online_ = std::make_unique<tune::Online>(
        comm, model_, [this](const PlanKey& key, const plan::PlanCache::Entry& entry) {
          known_[key] = {.plan = entry.plan, .decided = true};
          keep(key, entry);
        });
  }

  std::optional<Plan> find(const PlanKey& key) const override {
    const PlanKey whole = settled(key);
    if (const Known& known = known_of(whole); known.decided) return known.plan;
    return online_->find(whole);
  }

  std::optional<Plan> next(const PlanKey& key) const override {
    const PlanKey whole = settled(key);
    if (const Known& known = known_of(whole); known.decided) return known.plan;
    return online_->next(whole);
  }

  void took(const PlanKey& key, const Plan& plan, std::int64_t nanoseconds) const override {
    const PlanKey whole = settled(key);
    if (!known_of(whole).decided) online_->took(whole, plan, nanoseconds);
  }

 private:
  // A cached answer, because asking the model takes longer than a small product.
  struct Known {
    Plan plan;
    bool decided;  // false: trials will decide
  };
  struct Hash {
    std::size_t operator()(const PlanKey& key) const {
      std::size_t all = std::hash<std::string>()(key.weight);
      for (const std::int64_t one : {key.m, key.n, key.k, static_cast<std::int64_t>(key.op)})
        all = all * 1'000'003 + static_cast<std::size_t>(one);
      return all;
    }
  };
  static constexpr std::size_t kMostKnown = 8192;

  // A full cache is emptied. Only a program in which every problem is different fills it.
  const Known& known_of(const PlanKey& key) const {
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    if (known_.size() == kMostKnown) known_.clear();
    const auto cached = cache_.find(key);
    const bool decided = cached || !online_ || !online_->tries(key);
    const Plan plan = cached ? *cached : decided ? model_.choose(key) : Plan{};
    return known_.emplace(key, Known{.plan = plan, .decided = decided}).first->second;
  }

  // All ranks use the same number of threads, even if one of them has another.
  PlanKey settled(PlanKey key) const {
    if (key.threads == 0) key.threads = threads_;
    return key;
  }

  // Stores a new plan, and adds the plans that the ranks have agreed on: if only another host had a
  // file, this host's file would otherwise lack them. Entries that another process has written
  // meanwhile are kept. If the file can't be written, only the result is lost; the call succeeds.
  void keep(const PlanKey& key, const plan::PlanCache::Entry& entry) noexcept try {
    if (path_.empty()) return;
    plan::PlanCache found(cache_.machine());
    found.add(key, entry);
    plan::save_cache(path_, found, cache_);
    cache_.add(key, entry);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "automatic_plans: new plans are not stored: %s\n", error.what());
    path_.clear();
  }

  plan::PlanCache cache_;
  plan::CostModel model_;
  int threads_;
  std::string path_;
  std::unique_ptr<tune::Online> online_;  // null: plans are not tried
  mutable std::unordered_map<PlanKey, Known, Hash> known_;
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
    const bool same = are_same(files.cache, comm) && are_same(files.profile, comm);
    if (same || attempt == kAttempts) return files;
  }
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
  const std::string machine = plan::machine_fingerprint();
  const tune::Files files = read_alike(options, machine, comm);
  tune::agree_on("machines", machine, comm);
  check_refusals(files.refusal, comm);
  tune::agree_on("settings of tune_online", files.online ? "yes" : "no", comm);
  const auto cache = tune::agree_on("plan caches", files.cache, comm);
  const auto profile = tune::agree_on("profiles of their machine", files.profile, comm);
  const int threads = tune::least(base::thread_count(0), comm);
  return std::make_unique<Automatic>(
      Automatic::Parts{
          .cache = cache ? plan::PlanCache::parse(*cache) : plan::PlanCache(machine),
          .profile = profile ? plan::parse_profile(*profile) : plan::built_in_profile(),
          .threads = threads,
          .path = kept_here(files.path, comm)},
      files.online, comm);
}

}  // namespace plait
