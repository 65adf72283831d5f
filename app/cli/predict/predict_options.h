// The options of plait predict.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/bench/measurements.h"
#include "cli/output_files.h"
#include "cli/verbs.h"
#include "measure/op_setup.h"
#include "predict/operator.h"

namespace plait::cli {

class Options;

inline constexpr int kMostPredictedRanks = 4096;

// A modelled machine. What is not given is the device's or the network's own.
struct MachineOptions {
  int ranks = 8;
  std::string device = "h100";
  std::string link = {};
  std::optional<predict::Wiring> wiring = {};
  std::optional<double> rate = {};              // TFLOP/s
  std::optional<double> memory = {};            // GB/s
  std::optional<double> lost = {};              // percent
  std::optional<double> processor_per_gb = {};  // seconds
};

// `ranks` is the option for the number of ranks.
void add_options(Options& options, MachineOptions& machine, const char* ranks);
predict::Machine machine_of(const MachineOptions& options);

// Refuses products of f32 where no rate of them is known.
void check_rate_is_known(Dtype x, const predict::Machine& machine, const MachineOptions& options);

// Options that measurements have too.
void add_memory_option(Options& options, std::optional<double>& memory, const char* note);
void add_processor_option(Options& options, std::optional<double>& processor_per_gb,
                          const char* note);

// Bytes per element of a weight of this kind.
double weight_bytes(const std::string& weight, Dtype x);

struct OpPredictOptions {
  MeasuredOperator op;
  std::vector<measure::OpSize> sizes;
  predict::Problem problem;  // except for the sizes
  std::string weight;
  predict::Machine machine;
  std::vector<Plan> plans;  // the serial one first
  OutputFiles files;

  predict::Problem problem_of(const measure::OpSize& size) const;
};

// nullopt: help was requested and has been printed.
std::optional<OpPredictOptions> read_op_predict_options(const MeasuredOperator& op, Words words);

}  // namespace plait::cli
