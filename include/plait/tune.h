// A source of plans to use if you don't want to choose them yourself. It has plans that plait tune
// has measured on this machine. For other problems it uses the cost model, or measures in the first
// calls.
//
//   plait::Communicator comm = plait::Communicator::connect();
//   const auto plans = plait::automatic_plans(comm);
//   plait::matmul_all_reduce(x, w, y, comm, {.plans = plans.get()});
//
// If ranks have shares of n or k, a blocking call that asks a source first waits for a small
// all-gather of the shares, every time, unless OpOptions::whole_size says what they add up to. A
// prepared operator or a linear layer exchanges them once.
//
// An automatic plan is serial unless another is clearly faster: in measurements, or by more than
// the model's error. plait info --why "op=matmul-all-reduce m=512 n=4096 k=4096" explains one in
// numbers.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "plait/communicator.h"
#include "plait/export.h"
#include "plait/plan.h"

namespace plait {

struct AutomaticOptions {
  // The file in which plait tune keeps its plans; the machine's profile is next to it. Empty text:
  // no file. nullopt: the one in the settings (plan_cache of load_settings()).
  std::optional<std::string> cache = {};

  // If true, blocking calls of problems without a measured plan try some plans, call after call,
  // until the fastest is known. Some of these calls are slower than they could be. One of the ranks
  // that share a cache adds the result to it. nullopt: as the settings say (tune_online); if they
  // say nothing, plans are tried where the ranks are on several hosts.
  std::optional<bool> online = {};
};

// Collective. All ranks know the plans of all ranks' caches; if two have plans for a problem, the
// lowest rank's counts. Ranks that have no profile use that of the ranks that do. If two ranks have
// different ones, or are different machines, all ranks get Error{mismatch}. A file that is of
// another machine or can't be read is refused on all ranks if `cache` or a setting names it.
// Otherwise it is neither read nor written, with a remark on standard error. The source is for this
// communicator's ranks alone. The communicator must not be moved while the source exists.
PLAIT_EXPORT std::unique_ptr<PlanSource> automatic_plans(Communicator& comm,
                                                         const AutomaticOptions& options = {});

}  // namespace plait
