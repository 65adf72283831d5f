// The public classes, which hand over to the layers.
#include "base/check.h"
#include "nn/linear.h"
#include "ops/kept.h"

namespace plait {
namespace {

Linear& usable(const std::unique_ptr<Linear>& linear, const char* who) {
  PLAIT_CHECK(linear, who, ": this layer was moved to another");
  return *linear;
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(const LinearDesc& desc, Communicator& comm,
                                           const LinearOptions& options)
    : linear_(make_column(desc, comm, options)) {}
ColumnParallelLinear::ColumnParallelLinear(ColumnParallelLinear&&) noexcept = default;
ColumnParallelLinear& ColumnParallelLinear::operator=(ColumnParallelLinear&&) noexcept = default;
ColumnParallelLinear::~ColumnParallelLinear() = default;

void ColumnParallelLinear::forward(const LinearForward& call, LinearState* state) {
  usable(linear_, "ColumnParallelLinear").forward(call, state);
}
void ColumnParallelLinear::backward(const LinearBackward& call, const LinearState* state) {
  usable(linear_, "ColumnParallelLinear").backward(call, state);
}

RowParallelLinear::RowParallelLinear(const LinearDesc& desc, Communicator& comm,
                                     const LinearOptions& options)
    : linear_(make_row(desc, comm, options)) {}
RowParallelLinear::RowParallelLinear(RowParallelLinear&&) noexcept = default;
RowParallelLinear& RowParallelLinear::operator=(RowParallelLinear&&) noexcept = default;
RowParallelLinear::~RowParallelLinear() = default;

void RowParallelLinear::forward(const LinearForward& call, LinearState* state) {
  usable(linear_, "RowParallelLinear").forward(call, state);
}
void RowParallelLinear::backward(const LinearBackward& call, const LinearState* state) {
  usable(linear_, "RowParallelLinear").backward(call, state);
}

LinearMemory linear_memory(Communicator& comm) {
  const nn::Workspace& workspace = nn::Workspace::of(comm);
  return {.mailboxes = comm.mailbox_bytes() + workspace.mailbox_bytes(),
          .operators = ops::Kept::of(comm).bytes(),
          .workspace = workspace.bytes()};
}

}  // namespace plait
