// A source of plans to use if you don't want to choose them: plans that plait tune has measured on
// this machine, and for other problems the cost model's, or what the first calls find out.
//
//   plait::Communicator comm = plait::Communicator::connect();
//   const auto plans = plait::automatic_plans(comm);
//   plait::matmul_all_reduce(x, w, y, comm, {.plans = plans.get()});
//
// Where each rank has a share of n or k, a blocking call that asks a source waits for a small
// all-gather of the shares first, every time; what is prepared (prepare(), a linear layer) has them
// told once.
//
// An automatic plan is serial unless another is clearly faster, by what was measured or by more
// than the model may be wrong. plait info --why "op=matmul-all-reduce m=512 n=4096 k=4096" explains
// one in numbers.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "plait/communicator.h"
#include "plait/export.h"
#include "plait/plan.h"

namespace plait {

struct AutomaticOptions {
  // Where plait tune keeps its plans; the machine's profile is beside them. Empty text: nowhere.
  // nullopt: where the settings say (plan_cache of load_settings()).
  std::optional<std::string> cache = {};

  // Whether blocking calls of problems that were never measured try some plans, call after call,
  // until the fastest is known. Some of these calls are slower than they could be. What was found
  // is added to the cache, by one rank of those that have the same. nullopt: as the settings say
  // (tune_online).
  std::optional<bool> online = {};
};

// Collective. Ranks that have no cache, or no profile, use those of the ranks that do. Where two
// ranks have different ones, or are different machines, all of them get Error{mismatch}. A file
// that is of another machine or can't be read is refused on all ranks, in one sentence, if `cache`
// or a setting names it; otherwise it is neither read nor written, with a remark on standard error.
// The source is for this communicator's ranks alone. The communicator must stay where it is as long
// as the source lives.
PLAIT_EXPORT std::unique_ptr<PlanSource> automatic_plans(Communicator& comm,
                                                         const AutomaticOptions& options = {});

}  // namespace plait
