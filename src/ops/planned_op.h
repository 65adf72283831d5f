// An operator with a fixed n and k, prepared once for calls with any weight and number of rows.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "overlap/op_impl.h"
#include "plait/buffer.h"
#include "plait/ops.h"

namespace plait::ops {

// The sizes of a weight that ranks may share: all their shares together.
struct WholeSizes {
  std::int64_t n;
  std::int64_t k;
};

// The place at which a problem is solved.
struct KeyPlace {
  const Communicator& comm;
  const OpOptions& options;
};

// The key by which a source knows the problem: the same on all ranks.
PlanKey key_of(const OpDesc& desc, const WholeSizes& whole, const KeyPlace& place);

// Collective where each rank has a share of the weight, and the options don't say the whole size:
// ranks add up their shares.
PlanKey key_of(const OpDesc& desc, Communicator& comm, const OpOptions& options);

// The plan that a source has found, or the nearest that the operator can follow, or the default.
Plan checked(Operator op, const std::optional<Plan>& found);

// True if it is a source that has the operator's plans.
bool asks_for_plans(const OpDesc& desc, const OpOptions& options);

// The plan of the options, or of their source, or the default. Collective as key_of() is.
Plan plan_for(const OpDesc& desc, Communicator& comm, const OpOptions& options);

// An operator of any number of rows, in any plan: its product, and the memory and the mailbox of
// its calls so far.
class OpRunner {
 public:
  // Makes nothing that ranks share.
  OpRunner(const OpDesc& desc, Communicator& comm, const OpOptions& options);

  const OpDesc& desc() const { return desc_; }
  std::size_t held_bytes() const { return impl_->held_bytes() + bias_.bytes(); }

  // Collective: no call of at most m rows in this plan will make a mailbox.
  void make_room(std::int64_t m, const Plan& plan);

  // Prepares the next call. Collective if it has no mailbox that is large enough.
  void fit(std::int64_t m, const Plan& plan);

  // Does it for a call, whose poll hook is called meanwhile.
  void set_up(const OpCall& call, std::int64_t m, const Plan& plan);

  // The call has been checked, and has m rows.
  void run(const OpCall& call, std::int64_t m, const Plan& plan);

 private:
  Plan followed(const Plan& plan) const;
  template <class Make>
  void make(Make&& make);
  Trace* trace() const;
  void mark_call(std::int64_t m);
  void mark_return();

  OpDesc desc_;
  Communicator& comm_;
  Communicator::State& state_;
  OpOptions options_;  // without those of a call
  std::unique_ptr<overlap::OpImpl> impl_;
  Buffer bias_;
  std::string problem_;  // of a call of so many rows, with this rank's share of n or k
  std::int64_t problem_rows_ = -1;
};

// An OpRunner with its plans and its mailbox, for calls of at most desc.m rows. Collective.
class PlannedOp {
 public:
  PlannedOp(const OpDesc& desc, Communicator& comm, const OpOptions& options);

  const OpDesc& desc() const { return runner_.desc(); }
  const Plan& plan() const { return plans_.front(); }  // of desc().m rows
  std::size_t held_bytes() const { return runner_.held_bytes(); }

  // The call has been checked.
  void run(const OpCall& call);

 private:
  const Plan& plan_of(std::int64_t m) const;

  OpRunner runner_;
  // Plans for at most desc.m rows, for at most half of them, and so on. One: for any number.
  std::vector<Plan> plans_;
};

// Rows of all ranks together: the rows of an operand that every rank has whole.
std::int64_t rows_of(Operator op, const OpCall& call);

}  // namespace plait::ops
