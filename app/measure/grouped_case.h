// Products of groups to be measured: the experts of models, with their operands.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "measure/race.h"
#include "plait/buffer.h"
#include "plait/grouped_gemm.h"

namespace plait::measure {

// The first product of an expert: the gate and the projection beside it, in one.
struct ExpertsModel {
  std::string name;
  std::int64_t n, k;
  int experts, top;
};
const std::vector<ExpertsModel>& experts_models();

struct GroupedSetup {
  std::vector<ExpertsModel> models;
  std::vector<std::int64_t> tokens;
  std::vector<std::string> skews;  // "balanced" or "skewed"
  Dtype x = Dtype::bf16;
  Dtype out = Dtype::bf16;
  std::string weight;  // as in GemmDesc's text, packed before the call
  std::string backend = {};
  int threads = 1;
  Effort effort;
};

// The experts of each token, one token's after another: `top` different ones, of which each is
// chosen with its weight.
std::vector<std::int64_t> draw_experts(const ExpertsModel& model, std::int64_t tokens,
                                       const std::vector<double>& weights, unsigned seed);

// Rows of each expert. Balanced: each token goes to `top` random experts. Skewed: an expert is
// chosen with a weight of 1 / (its number + 1), so that the first has most rows.
std::vector<std::int64_t> rows_of_experts(const ExpertsModel& model, std::int64_t tokens,
                                          std::string_view skew);

// The weights of one model, and what multiplies by them.
class GroupedOperands {
 public:
  GroupedOperands(const GroupedSetup& setup, const ExpertsModel& model);

  // The call of all groups, and calls of a Gemm group by group. They must not outlive the operands.
  std::function<void()> one_call(const std::vector<std::int64_t>& rows);
  std::function<void()> group_by_group(const std::vector<std::int64_t>& rows);

  // The bytes of the weights of groups that have rows.
  std::size_t weight_bytes(const std::vector<std::int64_t>& rows) const;
  const GemmDesc& desc() const { return desc_; }

 private:
  const GroupedSetup& setup_;
  GemmDesc desc_;
  Buffer x_;
  Buffer out_;
  std::vector<std::unique_ptr<PackedWeight>> packed_;
  std::vector<Weight> weights_;
};

}  // namespace plait::measure
