// A random problem for the operators of plait/ulysses.h, equal on all ranks. Like VerifyCase, it
// depends only on the seed, its number and the world.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plait/quantized.h"
#include "plait/ulysses.h"
#include "verify/random.h"

namespace plait::verify {

struct UlyssesVariant {
  Plan plan;
  int threads = 1;
};

struct UlyssesCase {
  std::uint64_t seed = 0;
  bool product_first = true;  // matmul_all_to_all, else all_to_all_matmul
  std::int64_t m = 0;         // of all ranks
  std::int64_t n = 0, k = 0;  // of the whole weight
  ColumnGroups columns;       // of n, or of k
  bool shared = false;        // some of them by ranks, which bring x of their own to a sum
  Dtype x = Dtype::bf16;
  Dtype weight = Dtype::bf16;
  Dtype out = Dtype::bf16;
  std::optional<QuantScheme> scheme = {};
  WeightLayout layout = WeightLayout::out_in;
  bool packed = false;
  bool bias = false;
  bool gathered = false;
  bool delays = false;
  bool modes = false;  // each rank makes each call in a float mode of its own
  Numbers numbers = Numbers::usual;
  std::vector<UlyssesVariant> variants;  // each is compared with the serial one
};

UlyssesCase random_ulysses_case(std::uint64_t seed, std::int64_t number, int world);

std::string describe(const UlyssesCase& one);

}  // namespace plait::verify
