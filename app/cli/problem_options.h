// Options of problems and their plans, for verbs that measure or predict operators.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "measure/op_setup.h"
#include "plait/dtype.h"
#include "plait/plan.h"

namespace plait::cli {

class Options;

struct SizeOptions {
  std::vector<std::int64_t> m = {};
  std::vector<std::int64_t> n = {};
  std::vector<std::int64_t> k = {};
  std::string shapes = {};  // a file of sizes
};
void add_options(Options& options, SizeOptions& sizes);

// Returns as many sizes as the longest list has. A list with one size applies to all.
std::vector<measure::OpSize> read_sizes(const SizeOptions& sizes);

struct DtypeOptions {
  Dtype x = Dtype::bf16;
  std::optional<Dtype> out = {};

  Dtype result() const { return out.value_or(x); }
};
void add_options(Options& options, DtypeOptions& dtypes);

// The heads of an operator of Ulysses, as "32,4", or "32" with as many kv heads.
void add_heads_option(Options& options, measure::ExchangeSetup& exchange);

// The texts are kept as typed, because the plans depend on the operator.
struct PlanOptions {
  std::string schedule = {};
  std::string parts = {};
  std::string plans = {};
};
// `parts`: the default of --parts.
void add_options(Options& options, PlanOptions& plans, const std::string& parts = "2,4,8");

// The serial plan comes first, even if it was not requested. `parts`: the default of --parts.
std::vector<Plan> read_plans(Operator op, const PlanOptions& plans,
                             const std::string& parts = "2,4,8");

// Sentences name the operator of Ulysses, and not the one whose plans it has.
std::vector<Plan> read_plans(const measure::ExchangeSetup& exchange, const PlanOptions& plans,
                             const std::string& parts = "2,4,8");

// How the linear layers of a step communicate.
struct LayerOptions {
  bool no_sequence_parallel = false;
  bool keep_gathered = false;
  bool column_backward = false;
};
void add_options(Options& options, LayerOptions& layers);
void check(const LayerOptions& layers);

// Serial, and the plans of the text, between semicolons.
std::vector<Plan> read_plan_list(std::string_view option, const std::string& text);

}  // namespace plait::cli
