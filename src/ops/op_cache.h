// The operators that blocking calls have prepared, for the next calls with the same arguments.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "ops/planned_op.h"

namespace plait::ops {

class OpCache {
 public:
  // The cache keeps so many entries, and so many bytes of all together; it drops the least recently
  // used first. The last one stays, however large it is.
  struct Limits {
    std::size_t entries = 64;
    std::size_t bytes = std::size_t{1} << 30;
  };

  // The communicator's cache.
  static OpCache& of(Communicator& comm);

  OpCache() = default;
  explicit OpCache(const Limits& limits) : limits_(limits) {}

  // Collective. The call has been checked.
  void run(const OpDesc& desc, Communicator& comm, const OpOptions& options, const OpCall& call);

  // Asks a source for the plan of a problem, has it followed by a call of run(), and tells the
  // source how long that has taken, without what was prepared for it.
  void ask(const PlanSource& plans, const PlanKey& key,
           base::FunctionRef<void(const Plan& plan)> call);

  std::size_t size() const { return entries_.size(); }
  std::size_t bytes() const;

 private:
  // All that an OpRunner depends on. Rows and plan are the call's.
  struct Args {
    OpDesc desc;
    Dtype wire;
    std::int64_t shares;
    int threads;
    std::string backend;

    bool operator==(const Args&) const = default;
  };
  struct Entry {
    Args args;
    std::unique_ptr<OpRunner> runner;
    std::size_t bytes = 0;
  };

  void run(Entry& entry, const OpCall& call, const Plan& plan);

  static Args args_of(OpDesc desc, const OpOptions& options);
  Entry& find(const OpDesc& desc, Communicator& comm, const OpOptions& options);
  void make_room();

  Limits limits_;
  std::vector<Entry> entries_;  // the last used at the end
  base::Nanoseconds last_ = 0;
};

}  // namespace plait::ops
