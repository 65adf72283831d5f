#include "nn/linear_checks.h"

#include <optional>
#include <string>

#include "base/check.h"
#include "tensor/apart.h"
#include "tensor/validate.h"

namespace plait::nn {
namespace {

bool is_float(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::f16;
}

std::string subject(std::string_view layer, std::string_view what) {
  return base::sentence(layer, ": ", what);
}

struct Named {
  std::string_view name;
  ConstTensorView view;
};

void check_matrix(std::string_view layer, const Named& what, std::int64_t rows, std::int64_t cols) {
  tensor::validate_on_cpu(what.view, subject(layer, what.name));
  PLAIT_CHECK(is_float(what.view.dtype), layer, ": ", what.name, " is ", name(what.view.dtype),
              "; there are f32, bf16 and f16");
  PLAIT_CHECK(what.view.rows == rows && what.view.cols == cols, layer, ": ", what.name, " is ",
              what.view.rows, " x ", what.view.cols, ", not ", rows, " x ", cols);
}

void check_apart(std::string_view layer, const Named& one, const Named& other) {
  PLAIT_CHECK(tensor::are_apart(one.view, other.view), layer, ": ", one.name, " overlaps ",
              other.name);
}

// Nothing can be written over a packed one.
ConstTensorView view_of(const std::optional<Weight>& weight) {
  return !weight || weight->is_packed() ? ConstTensorView{} : weight->view().view;
}

}  // namespace

void check_weight(std::string_view layer, const Weight& weight, const WantedWeight& wanted) {
  const bool fits =
      weight.n() == wanted.n && weight.k() == wanted.k && weight.kind() == wanted.kind;
  PLAIT_CHECK(fits, layer, ": ", wanted.what, " takes ", weight.k(), " inputs to ", weight.n(),
              " outputs and is ", name(weight.kind()),
              ", but the layer was made for one that takes ", wanted.k, " to ", wanted.n,
              " and is ", name(wanted.kind));
}

void check_backward(std::string_view layer, const LinearBackward& call, const Wanted& wanted) {
  const auto [outputs, inputs] = wanted.sizes;
  const Sizes columns = wanted.columns.value_or(wanted.sizes);
  const Named x = {"x", call.x};
  const Named grad_out = {"grad_out", call.grad_out};
  const Named grad_x = {"grad_x", call.grad_x};
  const Named grad_weight = {"grad_weight", call.grad_weight};
  const Named grad_bias = {"grad_bias", call.grad_bias};
  check_matrix(layer, grad_out, wanted.grad_out_rows, columns.outputs);
  const bool has_x = is_given(call.x);
  PLAIT_CHECK(has_x || !wanted.needs_x, layer, ": grad_weight takes x, and the call has none");
  if (has_x) check_matrix(layer, x, wanted.x_rows, columns.inputs);
  if (is_given(call.grad_x)) check_matrix(layer, grad_x, wanted.x_rows, columns.inputs);
  if (is_given(call.grad_weight)) {
    const bool out_in = wanted.layout == WeightLayout::out_in;
    check_matrix(layer, grad_weight, out_in ? outputs : inputs, out_in ? inputs : outputs);
  }
  if (is_given(call.grad_bias)) check_matrix(layer, grad_bias, 1, outputs);
  for (const Named& out : {grad_x, grad_weight, grad_bias}) {
    check_apart(layer, out, grad_out);
    check_apart(layer, out, x);
    check_apart(layer, out, {"the weight", view_of(call.weight)});
    check_apart(layer, out, {"the turned weight", view_of(call.turned)});
  }
  check_apart(layer, grad_x, grad_weight);
  check_apart(layer, grad_x, grad_bias);
  check_apart(layer, grad_weight, grad_bias);
}

}  // namespace plait::nn
