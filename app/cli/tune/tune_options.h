// The options of plait tune.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/output_files.h"
#include "cli/verbs.h"
#include "measure/experts_case.h"
#include "measure/op_setup.h"
#include "plait/plan.h"
#include "tune/measure_profile.h"
#include "tune/tuner.h"

namespace plait::cli {

struct TuneOptions {
  std::vector<PlanKey> problems = {};  // their threads are set later, by the ranks
  measure::ExchangeSetup heads = {};   // of those with columns
  measure::ExpertsSetup experts = {};  // of layers of experts
  int ranks = 2;
  int threads = 0;  // of each rank; 0: its share of the cores
  std::string transport = {};
  std::string from = {};  // the timeline with the problems
  tune::TuneEffort effort = {};
  base::Nanoseconds longest_figure = tune::ProfileOptions{}.longest;
  std::string cache = {};
  OutputFiles files = {};     // only --json
  bool profile_only = false;  // measure only the machine
  bool show = false;          // print the stored plans
  bool missing = false;       // measure only problems without a stored plan
};

// nullopt: help was requested and has been printed.
std::optional<TuneOptions> read_tune_options(Words words);

}  // namespace plait::cli
