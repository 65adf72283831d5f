// Layers of experts to be measured: serial beside fused, and beside the best possible.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "measure/grouped_case.h"
#include "measure/race.h"
#include "measure/recording.h"
#include "plait/communicator.h"
#include "plait/experts.h"
#include "plait/link.h"

namespace plait::measure {

struct ExpertsSetup {
  std::vector<ExpertsModel> models;
  std::vector<std::int64_t> tokens;  // of each rank
  std::vector<std::string> skews;
  // Exchange by compute, over an emulated link; 0: no link, as always in a replicated batch.
  std::vector<double> ratios;
  bool replicated = false;  // all ranks have the same tokens
  Dtype x = Dtype::bf16;    // of weights and results too
  int threads = 0;
  std::string backend = {};  // of the products; empty: the best
  Effort effort;
};

struct ExpertsMeasurement {
  std::string model;
  std::int64_t tokens;
  std::string skew;
  std::optional<Link> link;
  bool by_network;           // over a link, or between hosts
  double most;               // rows of the rank that has most of them, by their mean
  std::size_t weight_bytes;  // of this rank's experts that have rows
  Times compute;             // of the rows of each rank, without an exchange
  Times exchange;            // alone; nothing in a replicated batch
  Times reading;             // of these weights
  Times serial, fused;
  bool bits_equal;  // on every rank

  // All times are those of the slowest rank.
  double ideal() const;  // nanoseconds
  // The share of what could be hidden that was hidden; nothing where that is within the noise.
  std::optional<double> efficiency() const;
};

// Known words of skews. balanced: experts are drawn alike. gini=0.15, gini=0.3: with weights that
// have this Gini coefficient, in random order. 4:1: the experts of rank 0 have four times the
// weight of others.
std::vector<std::string> experts_skews();

// The weight with which each expert is drawn.
std::vector<double> experts_weights(std::string_view skew, const ExpertsModel& model, int ranks);

// The layer of a model, all of one dtype.
ExpertsDesc describe(const ExpertsModel& model, Dtype dtype);

// Refuses the experts of all ranks if this host has less memory now than they take.
void check_memory(const ExpertsSetup& setup, const ExpertsModel& model);

// Calls of a layer with a batch of the first number of tokens and the first skew, or a balanced
// one: the i-th with plan i.
std::function<void(std::size_t)> experts_calls(const ExpertsSetup& setup, const ExpertsModel& model,
                                               const std::vector<Plan>& plans, Communicator& comm);

// Records these calls over a link, one after another. Collective.
Recorded record(const ExpertsSetup& setup, const ExpertsModel& model,
                const std::vector<Plan>& plans, const std::optional<Link>& link,
                Communicator& comm);

// Collective; the results are the same on all ranks, except for weight_bytes.
std::vector<ExpertsMeasurement> measure(const ExpertsSetup& setup, const ExpertsModel& model,
                                        Communicator& comm);

}  // namespace plait::measure
