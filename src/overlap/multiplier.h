// The product of an operator, window by window. It polls the communication now and then.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/function_ref.h"
#include "comm/core/executor.h"
#include "comm/core/group.h"
#include "overlap/cut.h"
#include "plait/gemm.h"
#include "plait/trace.h"

namespace plait::overlap {

// The operands of the products of one call.
struct Operands {
  ConstTensorView x;
  Weight weight;
  ConstTensorView bias = {};
};

// How the products of a call follow one another.
struct BatchHint {
  std::int64_t poll = 0;        // between two polls in a product, in microseconds
  std::int64_t fused_rows = 0;  // of all products that follow together, as the tiles of one; or 0
  bool rows_in_turns = false;   // several of them, by the same columns
};

class Multiplier {
 public:
  // Called about every `poll` microseconds from within a product, on the thread that multiplies.
  using PollStep = base::FunctionRef<void()>;

  // Null: there is no group that has a trace, or an executor.
  Multiplier(Gemm gemm, const comm::Group* group) : gemm_(std::move(gemm)), group_(group) {}

  // The bytes that it has allocated to work in.
  std::size_t held_bytes() const { return gemm_.held_bytes() + packed_.held_bytes(); }

  void begin(const Operands& operands, BatchHint hint);

  // After the last product: what belongs to the weight's elements, which may change, is given back.
  void end() { panels_.forget(); }

  // True if this call's products are multiplied, and not an executor's.
  bool multiplies() const { return executor_ == nullptr; }

  // Packs x if it is multiplied in several windows of columns.
  void pack();

  // Some rows of x by some columns of the weight.
  struct Request {
    Range rows;
    Range columns;
    std::span<const TensorView> outs;  // the first rows go to the first
  };
  void multiply(const Request& request, PollStep poll_step);

  // All columns by rows of x that are elsewhere than in the operands' x.
  void multiply_rows(const ConstTensorView& rows, const TensorView& out, PollStep poll_step);

 private:
  void run(GemmCall& call, PollStep poll_step);
  base::Nanoseconds poll() const { return hint_.poll * base::kMicrosecond; }
  Trace* trace() const { return group_ == nullptr ? nullptr : group_->trace(); }

  Gemm gemm_;
  const comm::Group* group_;
  comm::Executor* executor_ = nullptr;  // of this call's products; null: they are multiplied
  Operands operands_ = {.x = {}, .weight = WeightView{}};
  PackedInput packed_;
  PanelCache panels_;
  bool is_packed_ = false;
  BatchHint hint_ = {};
  bool first_ = true;
};

}  // namespace plait::overlap
