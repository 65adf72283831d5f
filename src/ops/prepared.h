// What is left to do once for many calls of an operator with the same sizes, whatever the weight.
#pragma once

#include <memory>

#include "overlap/operation.h"
#include "plait/buffer.h"
#include "plait/ops.h"

namespace plait::ops {

// What the options say, or their source knows, or the default. Collective where a source is asked
// about a problem of which each rank has a share: they add up their shares first.
Plan plan_for(const OpDesc& desc, const OpWeight& weight, Communicator& comm,
              const OpOptions& options);

class Prepared {
 public:
  Prepared(const OpDesc& desc, const OpWeight& weight, Communicator& comm,
           const OpOptions& options);

  const OpDesc& desc() const { return desc_; }
  const Plan& plan() const { return plan_; }
  std::size_t held_bytes() const { return operation_->held_bytes() + bias_.bytes(); }

  // The call has been checked.
  void run(const OpWeight& weight, const OpCall& call, overlap::Pace pace = {});

 private:
  OpDesc desc_;
  Plan plan_;
  std::unique_ptr<overlap::Operation> operation_;
  Buffer bias_;
};

}  // namespace plait::ops
