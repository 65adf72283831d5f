// A random problem for the linear layers, equal on all ranks. Like VerifyCase, it depends only on
// the seed, its number and the world.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plait/linear.h"
#include "plait/sum_tree.h"
#include "verify/random.h"

namespace plait::verify {

// Options that must not change a bit of the result.
struct LayerVariant {
  Plan plan;
  bool recompute_all_gather = true;
  bool column_backward = false;
  bool aligned_packing = true;
  int threads = 1;
};

struct LayerCase {
  std::uint64_t seed = 0;
  bool row = false;  // otherwise column
  bool sequence_parallel = true;
  std::int64_t m = 0;
  // of each rank: outputs of a column layer, inputs of a row layer
  std::vector<std::int64_t> shares;
  std::int64_t other = 0;  // the weight's other size
  Dtype x = Dtype::bf16;
  Dtype weight = Dtype::bf16;
  Dtype out = Dtype::bf16;
  Dtype grad_out = Dtype::bf16;
  Dtype grad_x = Dtype::bf16;
  Dtype grad_weight = Dtype::f32;
  Dtype wire = Dtype::f32;
  WeightLayout layout = WeightLayout::out_in;
  std::int64_t gap = 0;                    // between rows
  bool packed = false;                     // in both directions, as for frozen weights
  std::optional<QuantScheme> scheme = {};  // of the weight, in both directions
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

// The tree of the sums over ranks' shares: the output of a row layer, grad_x of a column layer.
SumTree tree_of(const LayerCase& one);

// True if one rank that has the whole layer must give the same bits in all results. Results that
// are not sums over ranks' shares are the same in any case.
bool is_as_on_one_rank(const LayerCase& one);

LayerCase random_layer_case(std::uint64_t seed, std::int64_t number, int world);

std::string describe(const LayerCase& one);

}  // namespace plait::verify
