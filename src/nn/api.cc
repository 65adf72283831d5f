// The public classes, which hand over to the layers.
#include "base/check.h"
#include "comm/session/state.h"
#include "nn/linear.h"
#include "ops/op_cache.h"

namespace plait {
namespace {

Linear& usable(const std::unique_ptr<Linear>& linear, const char* call) {
  PLAIT_CHECK(linear, call, ": this layer was moved to another");
  return *linear;
}

// A second thread is refused before it touches what the layers of a communicator share. Its mistake
// is no failure of the call that the first one is in.
template <class Call>
void as_only_thread(Linear& linear, const Call& call) {
  const Communicator::State::Use use(linear.communicator().state());
  call(linear);
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(const LinearDesc& desc, Communicator& comm,
                                           const LinearOptions& options)
    : linear_(make_column(desc, comm, options)) {}
ColumnParallelLinear::ColumnParallelLinear(ColumnParallelLinear&&) noexcept = default;
ColumnParallelLinear& ColumnParallelLinear::operator=(ColumnParallelLinear&&) noexcept = default;
ColumnParallelLinear::~ColumnParallelLinear() = default;

void ColumnParallelLinear::forward(const LinearForward& call, LinearState* state) {
  as_only_thread(usable(linear_, "ColumnParallelLinear"),
                 [&](Linear& linear) { linear.forward(call, state); });
}
void ColumnParallelLinear::backward(const LinearBackward& call, const LinearState* state) {
  as_only_thread(usable(linear_, "ColumnParallelLinear"),
                 [&](Linear& linear) { linear.backward(call, state); });
}

RowParallelLinear::RowParallelLinear(const LinearDesc& desc, Communicator& comm,
                                     const LinearOptions& options)
    : linear_(make_row(desc, comm, options)) {}
RowParallelLinear::RowParallelLinear(RowParallelLinear&&) noexcept = default;
RowParallelLinear& RowParallelLinear::operator=(RowParallelLinear&&) noexcept = default;
RowParallelLinear::~RowParallelLinear() = default;

void RowParallelLinear::forward(const LinearForward& call, LinearState* state) {
  as_only_thread(usable(linear_, "RowParallelLinear"),
                 [&](Linear& linear) { linear.forward(call, state); });
}
void RowParallelLinear::backward(const LinearBackward& call, const LinearState* state) {
  as_only_thread(usable(linear_, "RowParallelLinear"),
                 [&](Linear& linear) { linear.backward(call, state); });
}

LinearMemory linear_memory(Communicator& comm) {
  const nn::Workspace& workspace = nn::Workspace::of(comm);
  return {.mailboxes = comm.mailbox_bytes() + workspace.mailbox_bytes(),
          .operators = ops::OpCache::of(comm).bytes(),
          .workspace = workspace.bytes()};
}

LinearOptions linear_options(const Settings& settings, const PlanSource& plans) {
  return {.recompute_all_gather = settings.recompute_all_gather,
          .column_backward = settings.column_backward,
          .aligned_packing = settings.aligned_packing,
          .operators = {.wire = settings.wire,
                        .plans = &plans,
                        .threads = settings.threads,
                        .backend = settings.backend}};
}

}  // namespace plait
