// A random problem for the calls of plait/vocabulary.h and plait/columns.h, equal on all ranks. As
// with VerifyCase, it depends only on the seed, its number and the world.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plait/quantized.h"
#include "plait/vocabulary.h"
#include "verify/random.h"

namespace plait::verify {

struct HeadsVariant {
  int threads = 1;
  bool gives_first_id = false;
  Plan plan = {};  // of gathered columns
};

struct HeadsCase {
  std::uint64_t seed = 0;
  std::int64_t m = 0, k = 0;
  std::vector<std::int64_t> shares;  // ids of each rank
  std::int64_t top = 1;
  Dtype x = Dtype::bf16;
  Dtype weight = Dtype::bf16;
  std::optional<QuantScheme> scheme = {};  // without gradients
  WeightLayout layout = WeightLayout::out_in;
  bool packed = false;
  CrossEntropyOptions options = {};  // with the size of the vocabulary, and the dtype of logits
  bool delays = false;
  bool modes = false;  // each rank makes each call in a float mode of its own
  Numbers numbers = Numbers::usual;
  std::vector<HeadsVariant> variants;  // each is compared with the first

  std::int64_t ids() const;  // of all ranks, padding included
};

HeadsCase random_heads_case(std::uint64_t seed, std::int64_t number, int world);

std::string describe(const HeadsCase& one);

}  // namespace plait::verify
