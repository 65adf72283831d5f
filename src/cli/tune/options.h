// What plait tune was asked to do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/output_files.h"
#include "cli/verbs.h"
#include "plait/plan.h"
#include "tune/tuner.h"

namespace plait::cli {

struct TuneOptions {
  std::vector<PlanKey> problems = {};  // threads are not known before the ranks are
  int ranks = 2;
  int threads = 0;  // of each rank; 0: its share of the cores
  std::string transport = {};
  std::string from = {};  // the timeline that has the problems
  tune::TuneEffort effort = {};
  std::string cache = {};
  OutputFiles files = {};     // only --json
  bool profile_only = false;  // measures the machine
  bool show = false;          // prints what is there
  bool missing = false;       // measures only what isn't
};

// nullopt: help was asked for, and has been printed.
std::optional<TuneOptions> read_tune_options(Words words);

}  // namespace plait::cli
