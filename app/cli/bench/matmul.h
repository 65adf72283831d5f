// plait bench matmul: its options, and its results as text and as JSON.
#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/output_files.h"
#include "cli/verbs.h"
#include "measure/matmul_case.h"
#include "measure/race.h"

namespace plait::cli {

struct MatmulOptions : measure::MatmulSetup {
  OutputFiles files;
  std::vector<std::string> words;
};

// nullopt: help was requested and has been printed.
std::optional<MatmulOptions> read_matmul_options(Words words);

struct Peak {
  std::string by;  // the instruction's name
  double flops;    // per second, all threads together
};

struct MatmulResult {
  measure::MatmulCase what;
  measure::Times times;

  double flops() const;  // per second
  double reads() const;  // bytes of the weight per second
};

struct MatmulReport {
  const MatmulOptions& options;
  std::string processor;
  std::map<Dtype, Peak> peaks = {};          // by operand
  std::map<std::size_t, double> reads = {};  // bytes per second, by the bytes of the weight
  std::vector<MatmulResult> results = {};
};

// True if the product has so few rows, and so large a weight, that its time is that of reading the
// weight.
bool is_bound_by_reading(const measure::MatmulCase& one);

std::string show_text(const MatmulReport& report);
nlohmann::ordered_json show_json(const MatmulReport& report);

}  // namespace plait::cli
