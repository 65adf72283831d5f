// How long a training step of a transformer takes on a machine that is not here: its four parallel
// layers, played (predict/layer.h), and all else by sums that one can do by hand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/models.h"
#include "predict/layer.h"

namespace plait::predict {

struct Step {
  const Model* model;
  std::int64_t tokens;       // of a micro-batch
  std::int64_t sequence;     // of which each attends to those before it
  LayerProblem layers = {};  // but for kind and sizes
  double scale = 1;          // of the model's widths, for a smaller one like it
};

// Those of the step's model, as its ranks have them.
BlockWidths widths_of(const Step& step, int ranks);

// One of the four layers of a block.
struct BlockLayer {
  LinearLayer layer;
  LayerTimes times;
};

// The layers of a block, in one plan.
std::vector<BlockLayer> predict_block(const Machine& machine, const Step& step, const Plan& plan);

// What else a step does, on each rank, whatever the plan: the rest of all blocks, and the head.
struct Rest {
  base::Nanoseconds attention;
  base::Nanoseconds passes;  // over activations: norms, residuals, what is between up and down
  base::Nanoseconds head;

  base::Nanoseconds all() const { return attention + passes + head; }
};
Rest rest_of(const Machine& machine, const Step& step);

// How rest_of() reckons, an assumption a line.
std::string describe_rest();

}  // namespace plait::predict
