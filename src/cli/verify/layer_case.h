// A random problem for the linear layers, the same on all ranks. As VerifyCase, it depends on the
// seed, its number and the world alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/verify/dice.h"
#include "plait/linear.h"

namespace plait::cli {

// What must not change a bit.
struct LayerVariant {
  Plan plan;
  bool recompute_all_gather = true;
  bool column_backward = false;
  bool aligned_packing = true;
  int threads = 1;
};

struct LayerCase {
  std::uint64_t seed = 0;
  bool row = false;  // else column
  bool sequence_parallel = true;
  std::int64_t m = 0;
  std::vector<std::int64_t> shares;  // of each rank: outputs of a column layer, inputs of a row one
  std::int64_t other = 0;            // the weight's other size
  Dtype x = Dtype::bf16;
  Dtype weight = Dtype::bf16;
  Dtype out = Dtype::bf16;
  Dtype grad_out = Dtype::bf16;
  Dtype grad_x = Dtype::bf16;
  Dtype grad_weight = Dtype::f32;
  Dtype wire = Dtype::f32;
  WeightLayout layout = WeightLayout::out_in;
  std::int64_t gap = 0;  // between rows
  bool packed = false;   // both directions; frozen weights are
  bool bias = false;
  bool asks_x = true;
  bool asks_weight = true;
  bool asks_bias = false;
  bool accumulate = false;
  int in_flight = 1;  // forwards before the first backward
  bool delays = false;
  Numbers numbers = Numbers::usual;
  bool modes = false;                  // each rank makes each call in a float mode of its own
  std::vector<LayerVariant> variants;  // each is compared with the serial one
};

// Whether one rank that has the whole layer would give the same bits in all results, NaNs aside. In
// those that are no sums over ranks' shares it always does.
bool is_as_on_one_rank(const LayerCase& one);

LayerCase random_layer_case(std::uint64_t seed, std::int64_t number, int world);

std::string describe(const LayerCase& one);

}  // namespace plait::cli
