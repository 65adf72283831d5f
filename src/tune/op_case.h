// One operator on one rank, ready to be measured: its operands, and whoever runs it.
#pragma once

#include <memory>
#include <optional>

#include "comm/group.h"
#include "comm/timed_product.h"
#include "ops/prepared.h"
#include "plait/buffer.h"
#include "plait/communicator.h"
#include "plait/packed_weight.h"
#include "plait/plan.h"
#include "plait/weight.h"

namespace plait::tune {

// A problem: what its plan depends on, and how its weight lies.
struct Problem {
  PlanKey key;  // a weight that it calls plain is multiplied as it lies
  WeightLayout layout = WeightLayout::out_in;
};

class OpCase {
 public:
  OpCase(const Problem& problem, const Communicator& comm);

  // Bytes that the busiest link carries in one direction.
  double bytes_on_link() const;

  // The operator in one plan, over one communicator. Collective; must not outlive the case.
  class Runner {
   public:
    Runner(const OpCase& one, Operator op, const Plan& plan, Communicator& comm);
    void run(comm::Pace pace = {});
    void communicate() { run(0.0); }  // all but the product

   private:
    comm::Group& group_;
    OpCall call_;
    ops::Prepared prepared_;
  };

  // The product that a rank does in this operator, by itself and in one piece.
  std::unique_ptr<Runner> product(Communicator& comm) const;
  std::unique_ptr<Runner> runner(const Plan& plan, Communicator& comm) const;

  // Multiplications and additions of a rank's product.
  double flops() const;

  // This rank's x; its weight of n by k, as it came, made anew; and what the last run has written.
  ConstTensorView x() const { return x_of(key_.op); }
  Buffer random_weight(Dtype dtype) const;
  ConstTensorView out() const;

  std::int64_t n() const { return n_; }
  std::int64_t k() const { return k_; }

 private:
  WeightView as_it_lies() const;
  Weight weight() const;
  std::int64_t multiplied_rows() const;
  TensorView x_of(Operator op) const;
  TensorView out_of(Operator op) const;

  PlanKey key_;
  WeightLayout layout_;
  Dtype dtype_;  // of the weight, as it came
  int rank_;
  int world_;
  std::int64_t n_;  // of this rank's weight
  std::int64_t k_;
  Buffer x_;
  Buffer weight_;
  Buffer out_;
  std::optional<PackedWeight> packed_;
};

}  // namespace plait::tune
