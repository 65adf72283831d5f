// What plait bench layer and plait bench model were asked to measure: a training step of some
// linear layers, forward and backward.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/race.h"
#include "cli/output_files.h"
#include "cli/verbs.h"
#include "plait/linear.h"
#include "plait/link.h"
#include "plan/models.h"

namespace plait::cli {

// A link as it was asked for: by its figures, or by how much of the serial step it takes.
struct ShareWish {
  std::optional<Link> link = {};
  double share = 0;  // 0: not asked for
};

struct StepOptions {
  std::string model;                 // empty: one layer
  double scale = 1;                  // of the model's widths
  std::vector<LinearLayer> linears;  // of a block, scaled; whole, before they are cut
  int layers = 1;                    // blocks
  int layers_of_model = 1;
  std::int64_t sequence = 0;  // tokens of one; 0: a layer alone knows of none
  std::int64_t tokens = 0;    // of a step
  Dtype dtype = Dtype::bf16;
  Dtype grad_weight = Dtype::f32;
  Dtype wire = Dtype::f32;
  bool sequence_parallel = true;
  bool keep_gathered = false;
  bool column_backward = false;
  double stand_in = 0;  // for what is between the layers: of the products' time
  int ranks = 2;
  std::string transport;
  ShareWish link;
  int threads = 0;
  std::vector<Plan> plans;  // the serial one first
  Effort effort;
  OutputFiles files;

  LinearOptions linear(const Plan& plan) const;
};

// nullopt: help was asked for, and has been printed.
std::optional<StepOptions> read_layer_options(Words words);
std::optional<StepOptions> read_model_options(Words words);

}  // namespace plait::cli
