// The blocking calls: each finds what was prepared for its kind, or prepares it.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/default_floats.h"
#include "comm/session/state.h"
#include "ops/busy.h"
#include "ops/family_plan.h"
#include "plait/ulysses.h"
#include "ulysses/checks.h"
#include "ulysses/columns.h"
#include "ulysses/ulysses_op.h"

namespace plait {
namespace ulysses {
namespace {

constexpr std::size_t kMostKinds = 16;

// The operators of a communicator, the last used at the end.
class Cache {
 public:
  static Cache& of(Communicator& comm) {
    std::shared_ptr<void>& kept = comm.state().kept(typeid(Cache));
    if (kept == nullptr) kept = std::make_shared<Cache>();
    return *static_cast<Cache*>(kept.get());
  }

  UlyssesOp& find(Kind kind, Communicator& comm) {
    const auto found =
        std::find_if(ops_.begin(), ops_.end(), [&](const auto& op) { return op->kind() == kind; });
    if (found != ops_.end()) {
      std::rotate(found, found + 1, ops_.end());
    } else {
      ops_.push_back(std::make_unique<UlyssesOp>(std::move(kind), comm));
      if (ops_.size() > kMostKinds) ops_.erase(ops_.begin());
    }
    return *ops_.back();
  }

 private:
  std::vector<std::unique_ptr<UlyssesOp>> ops_;
};

PlanKey key_of(const Kind& kind, std::int64_t m) {
  return {.op = kind.product_first ? Operator::matmul_reduce_scatter : Operator::all_gather_matmul,
          .m = m,
          .n = kind.n,
          .k = kind.k,
          .x = kind.x,
          .weight = name(kind.weight),
          .out = kind.out,
          .threads = kind.threads,
          .backend = kind.backend,
          .family = Family::ulysses,
          .columns = most_of(kind.columns)};
}

void run(Kind kind, const Operands& operands, Communicator& comm, UlyssesOptions options) {
  const Communicator::State::Use use(comm.state());
  ops::refuse_within_another(comm.state(), kind.caller());  // find() might drop what is running
  const std::int64_t m = check_call(kind, operands, options, comm);
  kind.columns = joined(kind.columns);
  UlyssesOp& op = Cache::of(comm).find(kind, comm);
  if (options.plan || options.plans == nullptr) return op.run(operands, m, options);
  const PlanKey key = ops::key_in(key_of(kind, m), comm);
  options.plan = ops::plan_of_family(*options.plans, key, comm).value_or(Plan{});
  const base::Nanoseconds begin = base::now();
  op.run(operands, m, options);
  const base::DefaultFloats floats;
  options.plans->took(key, *options.plan, base::now() - begin);
}

Kind kind_of(bool product_first, const Operands& operands, const ColumnGroups& columns,
             const UlyssesOptions& options) {
  return {.product_first = product_first,
          .n = operands.weight.n(),
          .k = operands.weight.k(),
          .x = operands.x.dtype,
          .weight = operands.weight.kind(),
          .out = operands.out.dtype,
          .threads = options.threads,
          .backend = options.backend,
          .columns = columns};
}

}  // namespace
}  // namespace ulysses

void matmul_all_to_all(const ConstTensorView& x, const Weight& weight, const ColumnGroups& columns,
                       const TensorView& out, Communicator& comm, const UlyssesOptions& options) {
  const ulysses::Operands operands = {x, weight, out};
  ulysses::run(ulysses::kind_of(true, operands, columns, options), operands, comm, options);
}

void all_to_all_matmul(const ConstTensorView& x, const Weight& weight, const ColumnGroups& columns,
                       const TensorView& out, Communicator& comm, const UlyssesOptions& options) {
  const ulysses::Operands operands = {x, weight, out};
  ulysses::run(ulysses::kind_of(false, operands, columns, options), operands, comm, options);
}

}  // namespace plait
