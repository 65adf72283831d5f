// The options of plait bench OPERATOR.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/op_sizes.h"
#include "cli/bench/race.h"
#include "cli/output_files.h"
#include "cli/verbs.h"
#include "plait/link.h"
#include "plait/ops.h"
#include "tune/op_case.h"

namespace plait::cli {

// The requested link: by its figures, or by its effect on the collective's time.
struct RequestedLink {
  std::optional<Link> link = {};
  double ratio = 0;  // of the collective's time to the product's; 0: not requested

  explicit operator bool() const { return link.has_value() || ratio > 0; }
};

struct OpBenchOptions {
  Operator op = Operator::matmul;
  std::vector<OpSize> sizes;
  Dtype x = Dtype::bf16;
  Dtype out = Dtype::bf16;
  Dtype wire = Dtype::f32;
  std::string weight;  // a dtype or a scheme, packed; "plain": x's dtype, not packed before
  WeightLayout layout = WeightLayout::out_in;
  int ranks = 2;
  std::string transport;
  RequestedLink link;
  bool waits = false;       // wait as long as the product takes, in place of multiplying
  int threads = 0;          // 0: OpenMP's default
  std::string backend;      // of the product; empty: the best
  std::vector<Plan> plans;  // the serial one first
  Effort effort;
  OutputFiles files;
};

// The problem of one size, for plans and operands.
tune::Problem problem_of(const OpBenchOptions& options, const OpSize& size);

// Reads the options of plait bench OPERATOR, or of plait trace OPERATOR, which by default writes
// timelines. nullopt: help was requested and has been printed.
enum class OpVerb { bench, trace };
std::optional<OpBenchOptions> read_op_options(OpVerb verb, Operator op, Words words);

}  // namespace plait::cli
