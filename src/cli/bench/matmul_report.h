// What plait bench matmul has measured, for people and for programs.
#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/bench/matmul_case.h"
#include "cli/bench/race.h"

namespace plait::cli {

struct Peak {
  std::string by;  // the instruction's name
  double flops;    // a second, of all threads together
};

struct MatmulResult {
  MatmulCase what;
  Times times;

  double flops() const;  // a second
  double reads() const;  // bytes of the weight a second
};

struct MatmulReport {
  const MatmulOptions& options;
  std::string processor;
  std::map<Dtype, Peak> peaks;          // by operand
  std::map<std::size_t, double> reads;  // bytes a second, by the weight's bytes
  std::vector<MatmulResult> results;
};

// Whether there are few enough rows, and enough of a weight, for the time to be that of reading the
// weight.
bool is_bound_by_reading(const MatmulCase& one);

std::string show_text(const MatmulReport& report);
nlohmann::ordered_json show_json(const MatmulReport& report);

}  // namespace plait::cli
