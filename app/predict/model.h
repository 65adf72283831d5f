// Predicts how long a training step of a transformer takes on another machine. Modelled ranks run
// its four parallel layers (predict/layer.h); simple formulas give everything else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/models.h"
#include "predict/layer.h"

namespace plait::predict {

struct Step {
  const plan::Model* model;
  std::int64_t tokens;       // of a micro-batch
  std::int64_t sequence;     // each token attends to the earlier ones of its sequence
  LayerProblem layers = {};  // except for kind and sizes
  double scale = 1;          // of the model's widths, for a smaller model like it
};

// The widths of the step's model, as its ranks have them.
plan::BlockWidths widths_of(const Step& step, int ranks);

// One of the four layers of a block.
struct BlockLayer {
  plan::LinearLayer layer;
  LayerTimes times;
};

// The layers of a block, all with one plan.
std::vector<BlockLayer> predict_block(const Machine& machine, const Step& step, const Plan& plan);

// The rest of a step on each rank, independent of the plan: attention and other work of all blocks,
// and the head.
struct Rest {
  base::Nanoseconds attention;
  base::Nanoseconds passes;  // over activations: norms, residuals, the rows between up and down
  base::Nanoseconds head;

  base::Nanoseconds all() const { return attention + passes + head; }
};
Rest rest_of(const Machine& machine, const Step& step);

// The assumptions of rest_of(), one per line.
std::string describe_rest();

}  // namespace plait::predict
