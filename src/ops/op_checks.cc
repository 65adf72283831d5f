#include "ops/op_checks.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

#include "base/check.h"
#include "base/text.h"
#include "comm/core/operation.h"
#include "ops/device_checks.h"
#include "ops/planned_op.h"
#include "ops/shapes.h"
#include "quant/scheme.h"
#include "tensor/apart.h"
#include "tensor/validate.h"

namespace plait::ops {
namespace {

bool is_float(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::f16;
}

// "matmul_all_reduce: x", made without the heap: every call says it.
class Subject {
 public:
  Subject(Operator op, const char* what) {
    const std::string_view operation = name(op);
    std::snprintf(text_.data(), text_.size(), "%.*s: %s", static_cast<int>(operation.size()),
                  operation.data(), what);
  }
  operator std::string_view() const {  // NOLINT(google-explicit-constructor): it is that text
    return text_.data();
  }

 private:
  std::array<char, 64> text_;
};

bool is_given(const ConstTensorView& view) { return view.data != nullptr || view.rows != 0; }

// Far beyond any memory, and small enough that bytes and chunks can be counted.
constexpr std::int64_t kMostElements = std::int64_t{1} << 42;

struct Wanted {
  std::int64_t rows;
  std::int64_t cols;
  Dtype dtype;
  Device device;
  std::int64_t shared_rows = -1;  // of which `rows` are this rank's, where ranks share them
};

void check_view(Operator op, const char* what, const ConstTensorView& view, Device device) {
  if (device == kCpu) return tensor::validate_on_cpu(view, Subject(op, what));
  PLAIT_CHECK(view.device == device, name(op), ": ", what, " is on ", name(view.device),
              ", and the operator is on ", name(device), ", where all operands must be");
  tensor::validate(view, Subject(op, what));
}

// Why a matrix is to have so many rows, if the ranks share them.
std::string share_in_words(const ConstTensorView& view, const Wanted& wanted) {
  const bool is_share = wanted.shared_rows >= 0 && wanted.shared_rows != wanted.rows;
  if (!is_share || view.rows == wanted.rows) return "";
  return base::sentence(": of ", wanted.shared_rows, " rows this rank has ", wanted.rows);
}

void check_matrix(Operator op, const char* what, const ConstTensorView& view,
                  const Wanted& wanted) {
  check_view(op, what, view, wanted.device);
  PLAIT_CHECK(view.dtype == wanted.dtype, name(op), ": ", what, " is ", name(view.dtype),
              " but was said to be ", name(wanted.dtype));
  PLAIT_CHECK(view.rows == wanted.rows && view.cols == wanted.cols, name(op), ": ", what, " is ",
              view.rows, " x ", view.cols, ", not ", wanted.rows, " x ", wanted.cols,
              share_in_words(view, wanted));
}

void check_apart(Operator op, const char* what, const TensorView& out, const char* other_what,
                 const ConstTensorView& other) {
  PLAIT_CHECK(tensor::are_apart(out, other), name(op), ": ", what, " overlaps ", other_what);
}

}  // namespace

void check_plan(Operator op, const Plan& plan) {
  check(plan, name(op));
  PLAIT_CHECK(has_schedule(op, plan.schedule), name(op), ": there is no ", name(plan.schedule),
              " schedule of it; there ",
              traits_of(op).communicates() ? "are serial and pipelined" : "is serial");
  const bool by_columns = plan.schedule == Schedule::pipelined && plan.axis == Axis::columns;
  PLAIT_CHECK(!by_columns || is_compute_first(op), name(op),
              ": axis=columns would cut the k of a product; what comes first here is cut in rows");
}

void check_usable(Operator op, const Weight& weight, Device device) {
  if (weight.is_packed()) {
    PLAIT_CHECK(weight.packed().bytes() > 0 || weight.n() == 0 || weight.k() == 0, name(op),
                ": weight has been moved to another PackedWeight");
    return;
  }
  const ConstTensorView& view = weight.view().view;
  quant::check_layout(weight.layout(), Subject(op, "the weight"));
  check_view(op, "weight", view, device);
  PLAIT_CHECK(is_float(view.dtype), name(op), ": weight is an s8 view of ", view.rows, " x ",
              view.cols, ", which needs scales: QuantizedWeight::from_parts() takes both");
}

namespace {

bool is_operation(std::string_view word) {
  if (parse_operator(word)) return true;
  for (int i = 0; i <= static_cast<int>(comm::kLastOperation); ++i) {
    if (word == name(static_cast<Operation>(i))) return true;
  }
  return false;
}

}  // namespace

Error in_words_of(std::string_view caller, const Error& error) {
  std::string_view text = error.what();
  const auto word = text.substr(0, text.find(": "));
  if (word.size() < text.size() && is_operation(word)) {
    text.remove_prefix(word.size() + 2);
  } else if (!text.starts_with("rank ")) {  // of threads: "rank 0 waits to meet rank 1"
    return error;
  }
  return {error.code(), base::sentence(caller, ": ", text), error.culprit()};
}

void check_prepares(std::string_view caller, const OpOptions& options) {
  const char* what = nullptr;
  if (is_given(options.bias)) what = "a bias";
  if (is_given(options.gathered)) what = "a place for the gathered x";
  if (options.stream) what = "a stream";
  if (options.poll) what = "a poll hook";
  PLAIT_CHECK(what == nullptr, caller, ": ", what,
              " belongs to a single call, and is not among the options of what is prepared");
}

namespace {

void check_whole_size(const OpDesc& desc, std::int64_t size) {
  if (size == -1) return;
  const OperatorTraits& traits = traits_of(desc.op);
  PLAIT_CHECK(traits.shares_n || traits.shares_k, name(desc.op), ": whole_size=", size,
              "; ranks have shares of neither n nor k");
  const std::int64_t own = traits.shares_n ? desc.n : desc.k;
  PLAIT_CHECK(size >= own && size <= std::int64_t{1} << 48, name(desc.op), ": whole_size=", size,
              " is not between ", own, ", this rank's share, and 2^48");
}

}  // namespace

void check(const OpDesc& desc, const OpOptions& options) {
  const Operator op = desc.op;
  PLAIT_CHECK(static_cast<int>(op) < kOperators, "there is no operator ", static_cast<int>(op));
  for (const auto& [size, what] :
       {std::pair{desc.m, "m"}, std::pair{desc.n, "n"}, std::pair{desc.k, "k"}}) {
    PLAIT_CHECK(size >= 0 && size <= std::int64_t{1} << 48, name(op), ": ", what, "=", size,
                " is not between 0 and 2^48");
  }
  const Dtype weight = desc.weight.scheme ? Dtype::bf16 : desc.weight.dtype;
  for (const auto& [dtype, what] :
       {std::pair{desc.x, "x"}, std::pair{weight, "the weight"}, std::pair{desc.out, "out"}}) {
    PLAIT_CHECK(dtype != kNoDtype, name(op), ": ", what, " has no dtype");
    PLAIT_CHECK(is_float(dtype), name(op), ": ", what, " is ", name(dtype),
                "; there are f32, bf16 and f16");
  }
  PLAIT_CHECK(options.wire <= Dtype::s8 || options.wire == kAutomaticWire, name(op),
              ": the wire is ", name(options.wire), "; there are f32, bf16, f16 and s8");
  if (desc.weight.scheme) {
    quant::check_scheme(*desc.weight.scheme, name(op));
    PLAIT_CHECK(desc.weight.is_packed, name(op), ": a weight of ", name(*desc.weight.scheme),
                " is always packed");
  }
  const bool is_alone = !traits_of(op).communicates();
  PLAIT_CHECK(options.shares == 1 || (is_alone && options.shares > 1), name(op),
              ": shares=", options.shares,
              is_alone ? " is not positive" : "; only matmul is told of shares");
  check_whole_size(desc, options.whole_size);
  const std::int64_t widest = std::max({desc.n, desc.k, std::int64_t{1}});
  PLAIT_CHECK(desc.m <= kMostElements / widest, name(op), ": m=", desc.m, " by n=", desc.n,
              " k=", desc.k, " is more than memory can hold");
  PLAIT_CHECK(!desc.gathered || traits_of(op).gathers_x(), name(op),
              ": gathers no x; all_gather_matmul does");
  if (options.plan) check_plan(op, *options.plan);
  if (desc.device != kCpu) check_for_gpu(desc);
}

namespace {

void check_weight(const OpDesc& desc, const Weight& weight) {
  check_usable(desc.op, weight, desc.device);
  PLAIT_CHECK(weight.n() == desc.n && weight.k() == desc.k && weight.kind() == desc.weight,
              name(desc.op), ": weight has n=", weight.n(), " k=", weight.k(), " and is ",
              name(weight.kind()), " but the operator was prepared for n=", desc.n, " k=", desc.k,
              " and ", name(desc.weight));
}

}  // namespace

OpDesc of_as_many_rows(const OpDesc& prepared, const OpCall& call) {
  OpDesc desc = prepared;
  desc.m = rows_of(desc.op, call);
  PLAIT_CHECK(desc.m >= 0 && desc.m <= prepared.m, name(desc.op), ": m=", desc.m,
              " is not between 0 and ", prepared.m, ", the most that it was prepared for");
  return desc;
}

namespace {

void check_operands(const OpDesc& desc, const OpCall& call, Standing standing) {
  const Operator op = desc.op;
  const Shapes shapes = shapes_of(op);
  const auto [rank, world] = standing;
  check_matrix(op, "x", call.x,
               {.rows = count(shapes.x, desc.m, rank, world),
                .cols = desc.k,
                .dtype = desc.x,
                .device = desc.device,
                .shared_rows = desc.m});
  check_weight(desc, call.weight);
  check_matrix(op, "out", call.out,
               {.rows = count(shapes.out, desc.m, rank, world),
                .cols = desc.n,
                .dtype = desc.out,
                .device = desc.device,
                .shared_rows = desc.m});
  PLAIT_CHECK(!call.stream || desc.device != kCpu, name(op),
              ": a stream was given for operands on the ", name(kCpu), ", which has none");
  const bool has_bias = is_given(call.bias);
  if (has_bias) {
    PLAIT_CHECK(is_float(call.bias.dtype), name(op), ": bias is ", name(call.bias.dtype),
                "; there are f32, bf16 and f16");
    check_matrix(op, "bias", call.bias,
                 {.rows = 1, .cols = desc.n, .dtype = call.bias.dtype, .device = desc.device});
    check_apart(op, "out", call.out, "bias", call.bias);
  }
  check_apart(op, "out", call.out, "x", call.x);
  const bool is_plain = !call.weight.is_packed();
  if (is_plain) check_apart(op, "out", call.out, "weight", call.weight.view().view);
  PLAIT_CHECK(desc.gathered || call.gathered.data == nullptr, name(op),
              ": was not prepared to gather x");
  if (!desc.gathered) return;
  check_matrix(op, "gathered", call.gathered,
               {.rows = desc.m, .cols = desc.k, .dtype = desc.x, .device = desc.device});
  check_apart(op, "gathered", call.gathered, "x", call.x);
  check_apart(op, "gathered", call.gathered, "out", call.out);
  if (has_bias) check_apart(op, "gathered", call.gathered, "bias", call.bias);
  if (is_plain) check_apart(op, "gathered", call.gathered, "weight", call.weight.view().view);
}

}  // namespace

void check(const OpDesc& desc, const OpCall& call, Standing standing) {
  check_operands(desc, call, standing);
  if (desc.device == kCpu) {
    check_on_cpu(desc.op, call);
  } else {
    check_on_gpu(desc, call);
  }
}

}  // namespace plait::ops
