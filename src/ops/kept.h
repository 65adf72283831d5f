// What the blocking calls have prepared, for the next call of the same kind.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "ops/prepared.h"

namespace plait::ops {

class Kept {
 public:
  // The cache keeps so many kinds, and so many bytes of all together; the least recently used goes
  // first. The last one stays, however large it is.
  struct Limits {
    std::size_t kinds = 64;
    std::size_t bytes = std::size_t{1} << 30;
  };

  // What the communicator keeps.
  static Kept& of(Communicator& comm);

  Kept() = default;
  explicit Kept(const Limits& limits) : limits_(limits) {}

  // Collective. The call has been checked.
  void run(const OpDesc& desc, Communicator& comm, const OpOptions& options, const OpCall& call);

  // Asks a source for the plan of a problem, has it followed by a call of run(), and tells the
  // source how long that has taken, without what was prepared for it.
  void ask(const PlanSource& plans, const PlanKey& key,
           base::FunctionRef<void(const Plan& plan)> call);

  std::size_t kinds() const { return kept_.size(); }
  std::size_t bytes() const;

 private:
  // All that Ready depends on. Rows and plan are the call's.
  struct Kind {
    OpDesc desc;
    Dtype wire;
    std::int64_t shares;
    int threads;
    std::string backend;

    bool operator==(const Kind&) const = default;
  };
  struct One {
    Kind kind;
    std::unique_ptr<Ready> ready;
    std::size_t bytes = 0;
  };

  void run(One& one, const OpCall& call, const Plan& plan);

  static Kind kind_of(OpDesc desc, const OpOptions& options);
  One& find(const OpDesc& desc, Communicator& comm, const OpOptions& options);
  void make_room();

  Limits limits_;
  std::vector<One> kept_;  // the last used at the end
  base::Nanoseconds last_ = 0;
};

}  // namespace plait::ops
