// One operator on one rank, ready to be measured, with its operands.
#pragma once

#include <memory>
#include <optional>

#include "comm/core/group.h"
#include "ops/planned_op.h"
#include "plait/buffer.h"
#include "plait/communicator.h"
#include "plait/packed_weight.h"
#include "plait/plan.h"
#include "plait/weight.h"

namespace plait::tune {

// A problem: the key of its plan, and the layout of its weight.
struct Problem {
  PlanKey key;  // a plain weight is multiplied without packing it beforehand
  WeightLayout layout = WeightLayout::out_in;
};

class OpCase {
 public:
  OpCase(const Problem& problem, const Communicator& comm);

  // The bytes of all ranks' operands and results, in plain dtypes: what a case takes at least.
  static double operand_bytes(const PlanKey& key);

  // The bytes that the busiest link carries in one direction.
  double bytes_on_link() const;

  // Runs the operator with one plan over one communicator. Collective; must not outlive the case.
  class Runner {
   public:
    Runner(const OpCase& one, Operator op, const Plan& plan, Communicator& comm);
    void run(std::optional<double> ns_per_flop = {});
    void communicate() { run(0.0); }  // everything but the product

   private:
    comm::Group& group_;
    OpCall call_;
    ops::PlannedOp prepared_;
  };

  // The product of a rank in this operator, by itself and in one piece.
  std::unique_ptr<Runner> product(Communicator& comm) const;
  std::unique_ptr<Runner> runner(const Plan& plan, Communicator& comm) const;

  // Multiplications and additions of a rank's product.
  double flops() const;

  // This rank's x and weight; a new copy of its n by k weight before packing; and the result of the
  // last run.
  ConstTensorView x() const { return x_of(key_.op); }
  Weight weight() const;
  Buffer random_weight(Dtype dtype) const;
  TensorView out() const { return out_of(key_.op); }

  std::int64_t n() const { return n_; }
  std::int64_t k() const { return k_; }

 private:
  WeightView as_it_lies() const;
  std::int64_t multiplied_rows() const;
  TensorView x_of(Operator op) const;
  TensorView out_of(Operator op) const;

  PlanKey key_;
  WeightLayout layout_;
  Dtype dtype_;  // of the weight before packing
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
