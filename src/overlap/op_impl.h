// An operator ready to run: its plan as parts and chunks, its memory and its mailbox. Each
// call may have another number of rows than the one before, and another plan.
//
//   op->make_room(4096, plan);   // or leave that to fit()
//   op->fit(17, plan);
//   op->run(call);               // of 17 rows
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "overlap/multiplier.h"
#include "plait/communicator.h"
#include "plait/plan.h"
#include "plait/stream.h"
#include "plait/tag.h"

namespace plait::overlap {

// The operands that a rank multiplies, and the operator.
struct Problem {
  Operator op;
  std::int64_t m;  // rows of all ranks together, of one call
  std::int64_t n;  // columns of this rank's weight
  std::int64_t k;  // of this rank's weight
  Dtype x = Dtype::bf16;
  Dtype wire = Dtype::f32;
  Dtype out = Dtype::bf16;
  bool gathered = false;
  Device device = kCpu;  // on which all operands are
};

// One call. The rows of `x` and `out` are those that the operator asks of this rank.
struct Call {
  Operands operands;
  TensorView out;
  const float* bias = nullptr;                  // the operands' bias in f32
  TensorView gathered = {};                     // [m, k]; no data: not asked for
  const std::function<void()>* poll = nullptr;  // to be called now and then
  Stream stream = {};                           // on a device; null: its default stream
  Tag tag = {};                                 // on a device: numbered, and equal on all ranks
};

class OpImpl {
 public:
  virtual ~OpImpl() = default;

  // Collective: sees to a mailbox that no call of at most m rows in this plan is too large for.
  virtual void make_room(std::int64_t m, const Plan& plan) = 0;

  // Turns the plan into parts and chunks of m rows, where it is not what it did last. Makes what
  // they need and is not there: local memory, and a mailbox, which is collective. Which one that is
  // depends on what all ranks have in common, and not on the calls that this one remembers.
  void fit(std::int64_t m, const Plan& plan) {
    if (plan_ && m_ == m && *plan_ == plan) return;
    plan_.reset();  // until all is there
    cut(m, plan);
    m_ = m;
    plan_ = plan;
  }

  // Collective. What fails in it fails on every rank. It has been fitted to the call.
  virtual void run(const Call& call) = 0;

  // Bytes that the operation keeps for itself from call to call. What its product works in comes
  // with the first.
  virtual std::size_t held_bytes() const = 0;

 private:
  virtual void cut(std::int64_t m, const Plan& plan) = 0;

  std::int64_t m_ = 0;
  std::optional<Plan> plan_;
};

struct OpSpec {
  Problem problem;  // its m is not used
  int threads;
  Gemm gemm;                           // whose output is the wire where partial sums travel from it
  const comm::Group* group = nullptr;  // has their trace and executor
};

std::unique_ptr<OpImpl> make_compute_first(OpSpec spec, Communicator& comm);
std::unique_ptr<OpImpl> make_comm_first(OpSpec spec, Communicator& comm);

// For problems that need no peer: a product without communication, or a world of one whose partial
// sums are not rounded on the way.
std::unique_ptr<OpImpl> make_plain(OpSpec spec);

}  // namespace plait::overlap
