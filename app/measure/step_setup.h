// The setup of the measurement of a step of several linear layers: one of training, forward and
// backward, or one of generation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "measure/race.h"
#include "plait/linear.h"
#include "plait/link.h"
#include "plan/models.h"

namespace plait::measure {

// The requested link: by its figures, or by communication's share of the serial step.
struct RequestedShareLink {
  std::optional<Link> link = {};
  double share = 0;  // 0: not requested
};

struct StepSetup {
  std::string model;                       // empty: one layer
  double scale = 1;                        // of the model's widths
  std::vector<plan::LinearLayer> linears;  // of a block, scaled, before sharding
  int layers = 1;                          // blocks
  int layers_of_model = 1;
  std::int64_t sequence = 0;  // tokens of a sequence; 0: a single layer has no sequences
  std::int64_t tokens = 0;    // of a step
  Dtype dtype = Dtype::bf16;
  Dtype grad_weight = Dtype::f32;
  Dtype wire = Dtype::f32;
  bool decodes = false;  // forward only, as a loop that generates tokens calls the layers
  bool sequence_parallel = true;
  bool keep_gathered = false;
  bool column_backward = false;
  double stand_in = 0;  // the wait between layers, as a share of the products' time
  int ranks = 2;
  std::string transport;
  RequestedShareLink link;
  int threads = 0;
  std::vector<Plan> plans;  // the serial one first
  Effort effort;

  int passes() const { return decodes ? 1 : 2; }  // over all layers
};

}  // namespace plait::measure
