// Models the three schedules with times in place of work: performs the steps of src/overlap on the
// clock of a RankModel.
#pragma once

#include <cstdint>
#include <vector>

#include "plait/gemm.h"
#include "plan/cost_model.h"
#include "plan/rank_model.h"

namespace plait::plan {

class ScheduleModel {
 public:
  ScheduleModel(const MachineProfile& profile, const PlanKey& key, const Plan& plan);

  Prediction run();

 private:
  // A piece of the product, with the chunk that is sent for it.
  struct Part {
    double product;        // ns
    std::int64_t rows;     // of one rank's block
    std::int64_t columns;  // of one rank's block
  };

  void compute_first();
  void comm_first();
  void gather_beside_product();

  std::vector<Part> parts_by_columns() const;
  std::vector<Part> parts_by_rows() const;
  std::vector<Part> parts_of_x() const;
  double most_kept(const std::vector<Part>& parts) const;
  std::size_t chunks_of(const Part& part, Dtype dtype) const;
  ChunkCost chunk_cost(double elements) const;
  ChunkCost cost_of_x_chunk(double elements) const;
  double copies(double bytes) const;  // ns of copying to all peers
  double carriage(double bytes) const;
  ChunkCost carried(ChunkCost one) const;
  double product(std::int64_t rows, std::int64_t columns, std::int64_t runs = 1) const;

  bool sums() const { return traits_.reduces; }
  bool is_fused() const { return plan_.schedule == Schedule::fused; }

  const MachineProfile& profile_;
  const PlanKey& key_;
  const OperatorTraits& traits_;
  const Plan& plan_;
  std::int64_t peers_;
  std::int64_t shard_;  // rows of the first rank
  std::int64_t n_;      // columns of a rank's weight
  std::int64_t k_;
  double processor_;  // ns of the rank's processor for each byte that a network carries
  bool one_step_;
  bool linked_;
  double kept_ = 0;           // bytes of partial sums that wait to be summed
  double times_as_long_ = 1;  // how many times as long copies and sums take because of kept_
  RankModel rank_;
};

}  // namespace plait::plan
