// plait bench model --decode: where the time of a step goes, layer by layer.
#pragma once

#include <algorithm>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "measure/recording.h"
#include "measure/step_measure.h"
#include "measure/step_setup.h"

namespace plait::cli {

// The calls of one kind of layer in a step of one rank, or of all. Times are nanoseconds, the mean
// of all recorded steps.
struct LayerProfile {
  std::string name;
  double calls = 0;
  double bytes = 0;  // of the weights that are read
  double time = 0;
  double multiplying = 0;
  double communicating = 0;  // the rank itself copies and sums
  double waiting = 0;

  // Checks and preparation. Several threads can multiply and wait at once, and leave none of it.
  double rest() const { return std::max(time - multiplying - communicating - waiting, 0.0); }

  // Adds `factor` times each figure of another.
  void add(const LayerProfile& other, double factor);
};

struct RankProfile {
  int rank = 0;
  std::vector<LayerProfile> layers = {};  // in the order of a block

  LayerProfile sum() const;
};

struct StepProfile {
  Plan plan;
  int steps = 0;       // that were recorded
  double reading = 0;  // bytes per nanosecond
  std::vector<RankProfile> ranks = {};

  // The speed at which products read weights, as a share of reading alone.
  double of_reading(const LayerProfile& layer) const;
};

// `recorded` is that of record_loop(), without gaps.
StepProfile profile_of(const measure::StepSetup& setup, const measure::StepMeasurement& result,
                       const measure::Recorded& recorded);

std::string show_text(const StepProfile& profile);
nlohmann::ordered_json show_json(const StepProfile& profile);

}  // namespace plait::cli
