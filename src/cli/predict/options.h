// The options of plait predict.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/bench/op_options.h"
#include "cli/output_files.h"
#include "cli/verbs.h"
#include "predict/operator.h"

namespace plait::cli {

inline constexpr int kMostPredictedRanks = 4096;

// A modelled machine, as typed.
struct MachineWords {
  std::string ranks = "8";
  std::string device = "h100";
  std::string link = {};
  std::string wiring = {};
  std::string rate = {};
  std::string memory = {};
  std::string lost = {};
};

// `ranks` is the option for the number of ranks.
void add_options(Options& options, MachineWords& words, const char* ranks);
predict::Machine read_machine(const MachineWords& words, const char* ranks);

struct OpPredictOptions {
  std::vector<measure::OpSize> sizes;
  predict::Problem problem;  // except for the sizes
  std::string weight;
  predict::Machine machine;
  std::vector<Plan> plans;  // the serial one first
  OutputFiles files;
};

// nullopt: help was requested and has been printed.
std::optional<OpPredictOptions> read_op_predict_options(Operator op, Words words);

}  // namespace plait::cli
