// The options of plait bench OPERATOR.
#pragma once

#include <optional>

#include "cli/bench/measurements.h"
#include "cli/output_files.h"
#include "cli/verbs.h"
#include "measure/op_setup.h"

namespace plait::cli {

struct OpBenchOptions : measure::OpSetup {
  OutputFiles files;
  bool chose_wire = false;  // the place of the ranks did, not the user
};

// Reads the options of plait bench OPERATOR, or of plait trace OPERATOR, which by default writes
// timelines. nullopt: help was requested and has been printed.
enum class OpVerb { bench, trace };
std::optional<OpBenchOptions> read_op_options(OpVerb verb, const MeasuredOperator& op, Words words);

}  // namespace plait::cli
