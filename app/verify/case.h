// A random problem for the operators, equal on all ranks.
//
// It depends only on the seed, its number and the world, so that a failing case can be repeated
// alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plait/link.h"
#include "plait/ops.h"
#include "plait/quantized.h"
#include "plait/sum_tree.h"
#include "verify/random.h"

namespace plait::verify {

struct VerifyCase {
  std::uint64_t seed = 0;  // of its operands
  Operator op = Operator::matmul;
  std::int64_t m = 0;              // of all ranks together
  std::vector<std::int64_t> n, k;  // of each rank's weight
  Dtype x = Dtype::f32;
  Dtype weight = Dtype::f32;
  Dtype out = Dtype::f32;
  Dtype wire = Dtype::f32;
  std::optional<QuantScheme> scheme = {};
  WeightLayout layout = WeightLayout::out_in;
  bool packed = false;
  bool bias = false;
  Dtype bias_dtype = Dtype::f32;
  bool gathered = false;
  std::vector<Plan> plans;  // each is compared with the serial plan
  std::vector<int> threads;
  bool delays = false;     // ranks come late, and fall behind within calls, at random
  bool prepared = false;   // run prepared operators in place of blocking calls
  std::int64_t spare = 0;  // how many more rows are prepared for, or were in an earlier call
  Numbers numbers = Numbers::usual;
  bool modes = false;       // each rank makes each call in a float mode of its own
  bool two_groups = false;  // sums of other communicators run during each call (other_sums.h)
};

// The tree in which the sum is added.
SumTree tree_of(const VerifyCase& one);

// True if the contract promises the bits of one rank that has all k.
bool is_as_on_one_rank(const VerifyCase& one);

// `ops`: the operators to choose from.
VerifyCase random_case(std::uint64_t seed, std::int64_t number, int world,
                       const std::vector<Operator>& ops);

// Returns links for cases of a world; some cases have none.
std::optional<Link> random_link(std::uint64_t seed, std::int64_t number);

// One number if all are equal.
std::string show_shares(const std::vector<std::int64_t>& values);

std::string describe(const VerifyCase& one);

}  // namespace plait::verify
