#include "ulysses/checks.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "ops/op_checks.h"
#include "ops/shapes.h"
#include "tensor/apart.h"
#include "tensor/validate.h"
#include "ulysses/columns.h"

namespace plait::ulysses {
namespace {

// See ops/op_checks.cc.
constexpr std::int64_t kMostElements = std::int64_t{1} << 42;

bool is_float(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::f16;
}

struct Shape {
  std::int64_t rows;
  std::int64_t cols;
  std::string why = {};
};

void check_matrix(std::string_view caller, const char* what, const ConstTensorView& view,
                  const Shape& wanted) {
  tensor::validate_on_cpu(view, base::sentence(caller, ": ", what));
  PLAIT_CHECK(is_float(view.dtype), caller, ": ", what, " is ", name(view.dtype),
              "; there are f32, bf16 and f16");
  PLAIT_CHECK(view.rows == wanted.rows && view.cols == wanted.cols, caller, ": ", what, " is ",
              view.rows, " x ", view.cols, ", not ", wanted.rows, " x ", wanted.cols, wanted.why);
}

void check_apart(std::string_view caller, const char* what, const TensorView& to,
                 const char* other_what, const ConstTensorView& other) {
  PLAIT_CHECK(tensor::are_apart(to, other), caller, ": ", what, " overlaps ", other_what);
}

bool is_given(const ConstTensorView& view) { return view.data != nullptr || view.rows != 0; }

void check_plan(const Kind& kind, const Plan& plan) {
  check(plan, kind.caller());
  const bool by_columns = plan.schedule == Schedule::pipelined && plan.axis == Axis::columns;
  PLAIT_CHECK(!by_columns || kind.product_first, kind.caller(),
              ": axis=columns would cut the k of a product; its rows are cut");
}

}  // namespace

std::int64_t check_call(const Kind& kind, const Operands& operands, const UlyssesOptions& options,
                        const Communicator& comm) {
  const std::string_view caller = kind.caller();
  const std::int64_t m = kind.product_first ? operands.out.rows : operands.x.rows;
  try {
    ops::check_usable(Operator::matmul, operands.weight, kCpu);
  } catch (const Error& error) {
    throw ops::in_words_of(caller, error);
  }
  check(caller, kind.columns, kind.product_first ? kind.n : kind.k, comm.world());
  PLAIT_CHECK(m >= 0 && m <= kMostElements / std::max({kind.n, kind.k, std::int64_t{1}}), caller,
              ": m=", m, " by n=", kind.n, " k=", kind.k, " is no matrix that memory can hold");
  const std::int64_t own = ops::share_of(m, comm.rank(), comm.world());
  const std::int64_t group = count_of(kind.columns[static_cast<std::size_t>(comm.rank())]);
  const std::string share = base::sentence(": of ", m, " rows this rank has ", own);
  if (kind.product_first) {
    check_matrix(caller, "x", operands.x, {own, kind.k, share});
    check_matrix(caller, "out", operands.out, {m, group, ", all rows of this rank's columns"});
  } else {
    check_matrix(caller, "x", operands.x, {m, group, ", all rows of this rank's columns"});
    check_matrix(caller, "out", operands.out, {own, kind.n, share});
  }
  check_apart(caller, "out", operands.out, "x", operands.x);
  const bool is_plain = !operands.weight.is_packed();
  if (is_plain) check_apart(caller, "out", operands.out, "weight", operands.weight.view().view);
  if (is_given(options.bias)) {
    check_matrix(caller, "bias", options.bias, {1, kind.n});
    check_apart(caller, "out", operands.out, "bias", options.bias);
  }
  if (is_given(options.gathered)) {
    PLAIT_CHECK(!kind.product_first, caller, ": gathers no x; all_to_all_matmul does");
    check_matrix(caller, "gathered", options.gathered, {own, kind.k, share});
    PLAIT_CHECK(options.gathered.dtype == kind.x, caller, ": gathered is ",
                name(options.gathered.dtype), " but x is ", name(kind.x));
    check_apart(caller, "gathered", options.gathered, "x", operands.x);
    check_apart(caller, "gathered", options.gathered, "out", operands.out);
    if (is_plain)
      check_apart(caller, "gathered", options.gathered, "weight", operands.weight.view().view);
  }
  if (options.plan) check_plan(kind, *options.plan);
  return m;
}

}  // namespace plait::ulysses
