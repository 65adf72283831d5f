// What is left to do once for many calls of an operator with the same sizes, whatever the weight.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "overlap/operation.h"
#include "plait/buffer.h"
#include "plait/ops.h"

namespace plait::ops {

// Of a weight that ranks may share: all their shares together.
struct WholeSizes {
  std::int64_t n;
  std::int64_t k;
};

// Where a problem is to be solved.
struct KeyPlace {
  const Communicator& comm;
  const OpOptions& options;
};

// By which a source knows the problem: the same on all ranks.
PlanKey key_of(const OpDesc& desc, const WholeSizes& whole, const KeyPlace& place);

// Collective where each rank has a share of the weight: they add up their shares.
PlanKey key_of(const OpDesc& desc, Communicator& comm, const OpOptions& options);

// What a source has found, or the nearest that the operator can follow; or else the default.
Plan checked(Operator op, const std::optional<Plan>& found);

// What the options say, or their source knows, or the default. Collective as key_of() is.
Plan plan_for(const OpDesc& desc, Communicator& comm, const OpOptions& options);

class Prepared {
 public:
  Prepared(const OpDesc& desc, Communicator& comm, const OpOptions& options);

  const OpDesc& desc() const { return desc_; }
  const Plan& plan() const { return plan_; }
  std::size_t held_bytes() const { return operation_->held_bytes() + bias_.bytes(); }

  // The call has been checked.
  void run(const OpCall& call);

 private:
  void mark_call();
  void mark_return();

  OpDesc desc_;
  Plan plan_;
  Communicator::State& state_;
  std::string problem_;  // with this rank's share of n or k
  std::unique_ptr<overlap::Operation> operation_;
  Buffer bias_;
};

}  // namespace plait::ops
