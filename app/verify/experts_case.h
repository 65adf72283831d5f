// A random layer of experts with a batch of rows, equal on all ranks. Like VerifyCase, it depends
// only on the seed, its number and the world.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plait/experts.h"
#include "verify/random.h"

namespace plait::verify {

struct ExpertsVariant {
  Schedule schedule = Schedule::fused;
  int threads = 1;
};

struct ExpertsCase {
  std::uint64_t seed = 0;
  ExpertsDesc desc = {};
  std::vector<std::int64_t> rows;  // of each rank, or of all ranks alike in a replicated batch
  bool replicated = false;
  bool gradients = false;
  bool biases = false;
  WeightLayout layout = WeightLayout::out_in;
  bool skewed = false;  // most rows go to one expert
  bool delays = false;
  bool modes = false;  // each rank makes each call in a float mode of its own
  Numbers numbers = Numbers::usual;
  std::vector<ExpertsVariant> variants;  // each is compared with the serial one
};

ExpertsCase random_experts_case(std::uint64_t seed, std::int64_t number, int world);

std::string describe(const ExpertsCase& one);

}  // namespace plait::verify
