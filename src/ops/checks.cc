#include "ops/checks.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>
#include <variant>

#include "base/check.h"
#include "base/text.h"
#include "ops/shapes.h"
#include "plan/weight_kind.h"
#include "quant/scheme.h"
#include "tensor/apart.h"
#include "tensor/validate.h"

namespace plait::ops {
namespace {

const PackedWeight* packed(const OpWeight& weight) {
  const auto* reference = std::get_if<std::reference_wrapper<const PackedWeight>>(&weight);
  return reference == nullptr ? nullptr : &reference->get();
}

const WeightView& plain(const OpWeight& weight) { return std::get<WeightView>(weight); }

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

// Far beyond any memory, and small enough that bytes and chunks can be counted.
constexpr std::int64_t kMostElements = std::int64_t{1} << 42;

struct Wanted {
  std::int64_t rows;
  std::int64_t cols;
  Dtype dtype;
};

void check_matrix(Operator op, const char* what, const ConstTensorView& view,
                  const Wanted& wanted) {
  tensor::validate_on_cpu(view, Subject(op, what));
  PLAIT_CHECK(view.dtype == wanted.dtype, name(op), ": ", what, " is ", name(view.dtype),
              " but was said to be ", name(wanted.dtype));
  PLAIT_CHECK(view.rows == wanted.rows && view.cols == wanted.cols, name(op), ": ", what, " is ",
              view.rows, " x ", view.cols, ", not ", wanted.rows, " x ", wanted.cols);
}

void check_apart(Operator op, const char* what, const TensorView& out, const char* other_what,
                 const ConstTensorView& other) {
  PLAIT_CHECK(tensor::are_apart(out, other), name(op), ": ", what, " overlaps ", other_what);
}

}  // namespace

std::int64_t n_of(const OpWeight& weight) {
  const PackedWeight* ready = packed(weight);
  return ready == nullptr ? plain(weight).n() : ready->n();
}
std::int64_t k_of(const OpWeight& weight) {
  const PackedWeight* ready = packed(weight);
  return ready == nullptr ? plain(weight).k() : ready->k();
}
Dtype dtype_of(const OpWeight& weight) {
  const PackedWeight* ready = packed(weight);
  return ready == nullptr ? plain(weight).view.dtype : ready->dtype();
}
std::optional<QuantScheme> scheme_of(const OpWeight& weight) {
  const PackedWeight* ready = packed(weight);
  return ready == nullptr ? std::nullopt : ready->scheme();
}
std::string kind_of(const OpWeight& weight) {
  const auto scheme = scheme_of(weight);
  return scheme ? name(*scheme) : std::string(name(dtype_of(weight)));
}
std::string plan_kind_of(const OpWeight& weight) {
  return packed(weight) == nullptr ? plain_weight(dtype_of(weight)) : kind_of(weight);
}

void check_plan(Operator op, const Plan& plan) {
  check(plan, name(op));
  PLAIT_CHECK(has_schedule(op, plan.schedule), name(op), ": there is no ", name(plan.schedule),
              " schedule of it; there ",
              op == Operator::matmul ? "is serial" : "are serial and pipelined");
  const bool by_columns = plan.schedule == Schedule::pipelined && plan.axis == Axis::columns;
  PLAIT_CHECK(!by_columns || is_compute_first(op), name(op),
              ": axis=columns would cut the k of a product; what comes first here is cut in rows");
}

void check_usable(Operator op, const OpWeight& weight) {
  if (const PackedWeight* ready = packed(weight)) {
    PLAIT_CHECK(ready->bytes() > 0 || ready->n() == 0 || ready->k() == 0, name(op),
                ": weight has been moved to another PackedWeight");
    return;
  }
  const WeightView& view = plain(weight);
  quant::check_layout(view.layout, Subject(op, "the weight"));
  tensor::validate_on_cpu(view.view, Subject(op, "weight"));
  PLAIT_CHECK(is_float(view.view.dtype), name(op), ": weight is an s8 view of ", view.view.rows,
              " x ", view.view.cols,
              ", which needs scales: QuantizedWeight::from_parts() takes both");
}

namespace {

bool is_operation(std::string_view word) {
  if (word == name(Operator::matmul)) return true;
  for (int i = 0; i <= static_cast<int>(Operation::all_reduce_matmul); ++i) {
    if (word == name(static_cast<Operation>(i))) return true;
  }
  return false;
}

}  // namespace

Error in_words_of(std::string_view who, const Error& error) {
  std::string_view text = error.what();
  const auto word = text.substr(0, text.find(": "));
  if (word.size() < text.size() && is_operation(word)) {
    text.remove_prefix(word.size() + 2);
  } else if (!text.starts_with("rank ")) {  // of threads: "rank 0 waits to meet rank 1"
    return error;
  }
  return {error.code(), base::sentence(who, ": ", text), error.culprit()};
}

void check(const OpDesc& desc, const OpWeight& weight, const OpOptions& options) {
  PLAIT_CHECK(static_cast<int>(desc.op) < kOperators, "there is no operator ",
              static_cast<int>(desc.op));
  PLAIT_CHECK(desc.m >= 0 && desc.m <= std::int64_t{1} << 48, name(desc.op), ": m=", desc.m,
              " is not between 0 and 2^48");
  for (const auto& [dtype, what] :
       {std::pair{desc.x, "x"}, std::pair{desc.out, "out"}, std::pair{options.wire, "the wire"}}) {
    PLAIT_CHECK(is_float(dtype), name(desc.op), ": ", what, " is ", name(dtype),
                "; there are f32, bf16 and f16");
  }
  const std::int64_t widest = std::max({n_of(weight), k_of(weight), std::int64_t{1}});
  PLAIT_CHECK(desc.m <= kMostElements / widest, name(desc.op), ": m=", desc.m,
              " by n=", n_of(weight), " k=", k_of(weight), " is more than memory can hold");
  PLAIT_CHECK(!desc.gathered || desc.op == Operator::all_gather_matmul, name(desc.op),
              ": gathers no x; all_gather_matmul does");
  check_usable(desc.op, weight);
  if (options.plan) check_plan(desc.op, *options.plan);
}

void check(const OpDesc& desc, const OpWeight& weight, const OpCall& call, Standing standing) {
  const Operator op = desc.op;
  const Shapes shapes = shapes_of(op);
  const std::int64_t n = n_of(weight);
  const std::int64_t k = k_of(weight);
  const auto [rank, world] = standing;
  check_matrix(op, "x", call.x,
               {.rows = count(shapes.x, desc.m, rank, world), .cols = k, .dtype = desc.x});
  check_matrix(op, "out", call.out,
               {.rows = count(shapes.out, desc.m, rank, world), .cols = n, .dtype = desc.out});
  const bool has_bias = call.bias.data != nullptr || call.bias.rows != 0;
  if (has_bias) {
    PLAIT_CHECK(is_float(call.bias.dtype), name(op), ": bias is ", name(call.bias.dtype),
                "; there are f32, bf16 and f16");
    check_matrix(op, "bias", call.bias, {.rows = 1, .cols = n, .dtype = call.bias.dtype});
    check_apart(op, "out", call.out, "bias", call.bias);
  }
  check_apart(op, "out", call.out, "x", call.x);
  if (packed(weight) == nullptr) check_apart(op, "out", call.out, "weight", plain(weight).view);
  PLAIT_CHECK(desc.gathered || call.gathered.data == nullptr, name(op),
              ": was not prepared to gather x");
  if (!desc.gathered) return;
  check_matrix(op, "gathered", call.gathered, {.rows = desc.m, .cols = k, .dtype = desc.x});
  check_apart(op, "gathered", call.gathered, "x", call.x);
  check_apart(op, "gathered", call.gathered, "out", call.out);
  if (has_bias) check_apart(op, "gathered", call.gathered, "bias", call.bias);
  if (packed(weight) == nullptr)
    check_apart(op, "gathered", call.gathered, "weight", plain(weight).view);
}

}  // namespace plait::ops
