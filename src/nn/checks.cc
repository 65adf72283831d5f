#include "nn/checks.h"

#include <string>
#include <variant>

#include "base/check.h"
#include "ops/checks.h"
#include "tensor/apart.h"
#include "tensor/validate.h"

namespace plait::nn {
namespace {

bool is_float(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::f16;
}

std::string subject(std::string_view who, std::string_view what) {
  return base::sentence(who, ": ", what);
}

struct Named {
  std::string_view name;
  ConstTensorView view;
};

void check_matrix(std::string_view who, const Named& what, std::int64_t rows, std::int64_t cols) {
  tensor::validate_on_cpu(what.view, subject(who, what.name));
  PLAIT_CHECK(is_float(what.view.dtype), who, ": ", what.name, " is ", name(what.view.dtype),
              "; there are f32, bf16 and f16");
  PLAIT_CHECK(what.view.rows == rows && what.view.cols == cols, who, ": ", what.name, " is ",
              what.view.rows, " x ", what.view.cols, ", not ", rows, " x ", cols);
}

void check_apart(std::string_view who, const Named& one, const Named& other) {
  PLAIT_CHECK(tensor::are_apart(one.view, other.view), who, ": ", one.name, " overlaps ",
              other.name);
}

// Of a packed one nothing can be written over.
ConstTensorView view_of(const OpWeight* weight) {
  const auto* plain = std::get_if<WeightView>(weight);
  return plain == nullptr ? ConstTensorView{} : plain->view;
}

}  // namespace

void check_weight(std::string_view who, const LinearWeight& weight, const Sizes& sizes) {
  if (!weight.backward) return;
  const std::int64_t n = ops::n_of(*weight.backward);
  const std::int64_t k = ops::k_of(*weight.backward);
  PLAIT_CHECK(n == sizes.inputs && k == sizes.outputs, who, ": the weight for backward takes ", k,
              " inputs to ", n, " outputs, but the layer takes ", sizes.inputs, " to ",
              sizes.outputs, ", which backward goes the other way");
}

void check_backward(std::string_view who, const LinearBackward& call, const Wanted& wanted) {
  const auto [outputs, inputs] = wanted.sizes;
  PLAIT_CHECK(wanted.x.rows == wanted.x_rows && wanted.x.cols == inputs, who,
              ": backward was given the state of another layer, whose x is ", wanted.x.rows, " x ",
              wanted.x.cols, ", not ", wanted.x_rows, " x ", inputs);
  const Named grad_out = {"grad_out", call.grad_out};
  const Named grad_x = {"grad_x", call.grad_x};
  const Named grad_weight = {"grad_weight", call.grad_weight};
  const Named grad_bias = {"grad_bias", call.grad_bias};
  check_matrix(who, grad_out, wanted.grad_out_rows, outputs);
  if (is_asked(call.grad_x)) check_matrix(who, grad_x, wanted.x.rows, inputs);
  if (is_asked(call.grad_weight)) {
    const bool out_in = wanted.layout == WeightLayout::out_in;
    check_matrix(who, grad_weight, out_in ? outputs : inputs, out_in ? inputs : outputs);
  }
  if (is_asked(call.grad_bias)) check_matrix(who, grad_bias, 1, outputs);
  const Named x = {"x", wanted.x};
  for (const Named& out : {grad_x, grad_weight, grad_bias}) {
    check_apart(who, out, grad_out);
    check_apart(who, out, x);
    check_apart(who, out, {"the weight", view_of(&wanted.weight.weight)});
    if (wanted.weight.backward)
      check_apart(who, out, {"the weight for backward", view_of(&*wanted.weight.backward)});
  }
  check_apart(who, grad_x, grad_weight);
  check_apart(who, grad_x, grad_bias);
  check_apart(who, grad_weight, grad_bias);
}

}  // namespace plait::nn
