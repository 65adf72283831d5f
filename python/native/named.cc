#include "named.h"

#include <string>

#include "plait/error.h"

namespace plait::python {
namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& words) {
  throw Error(Code::invalid_argument, "'" + std::string(text) + "' is no " + words);
}

}  // namespace

template <>
Dtype called(std::string_view text) {
  if (const auto dtype = parse_dtype(text)) return *dtype;
  refuse(text, "dtype; there are f32, bf16, f16 and s8");
}

template <>
Operator called(std::string_view text) {
  if (const auto op = parse_operator(text)) return *op;
  std::string all;
  for (const OperatorTraits& traits : kOperatorTraits)
    all += (all.empty() ? "" : ", ") + std::string(traits.name);
  refuse(text, "operator; there are " + all);
}

template <>
Plan called(std::string_view text) {
  return parse_plan(text);
}

template <>
QuantScheme called(std::string_view text) {
  if (const auto scheme = parse_quant_scheme(text)) return *scheme;
  refuse(text,
         "scheme; there are s8 and s4, followed by :tensor, :channel or :group=N, and then "
         ":offsets");
}

template <>
WeightLayout called(std::string_view text) {
  if (text == "out_in") return WeightLayout::out_in;
  if (text == "in_out") return WeightLayout::in_out;
  refuse(text, "layout; there are out_in, [n, k] as in torch.nn.Linear, and in_out, [k, n]");
}

}  // namespace plait::python
