// The measurements of plait bench, and those that plait trace draws too: one function each, which
// takes the words after its name and returns the exit status.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/verbs.h"
#include "measure/op_setup.h"

namespace plait::cli {

int bench_matmul(Words words);
int bench_grouped(Words words);
int bench_experts(Words words);
int bench_heads(Words words);
int bench_layer(Words words);
int bench_model(Words words);
int trace_experts(Words words);
int trace_heads(Words words);

// An operator that bench and trace measure.
struct MeasuredOperator {
  Operator op = Operator::matmul;  // of `exchange`: its product
  std::optional<measure::ExchangeSetup> exchange = {};

  std::string_view name() const { return exchange ? exchange->name() : plait::name(op); }
};
std::optional<MeasuredOperator> find_measured(std::string_view spelling);
std::vector<std::string> measured_words();  // all that communicate

// `verb` is "bench" or "trace"; `spelling` is the operator as typed.
int measure_operator(const std::string& verb, const std::string& spelling, Words words);

}  // namespace plait::cli
