// The gradients of a layer of experts. Rows of x and of out's gradient travel together; the first
// product and the activation are made again.
//
//   rank of the row:     x, grad_out, weight of each slot                  -> rank of the expert
//   rank of the expert:  u = x * up + up_bias,  h = weight * activation(u)
//                        dh = grad_out * down^T,  du = dh * weight * activation'(u)
//                        du * up^T, and the weight's gradient dh * activation(u)  -> back
//                        grad_down = grad_out^T * h,  grad_up = du^T * x, meanwhile
#pragma once

#include <cstdint>
#include <vector>

#include "comm/session/state.h"
#include "experts/activation.h"
#include "experts/exchange.h"
#include "experts/placement.h"
#include "experts/polled_product.h"
#include "nn/workspace.h"
#include "plait/experts.h"

namespace plait::experts {

class Backward final : private RowUser {
 public:
  Backward(const ExpertsDesc& desc, const ExpertsOptions& options, const Placement& placement,
           Communicator::State& state);

  // Collective, the first time. `call` has been checked, and outlives run(). Turned weights are
  // those of a plain weight where none are given.
  void prepare(const Tag& tag, const ExpertsBackward& call);
  void run(const Tag& tag, overlap::PollHook& poll);

  std::size_t held_bytes() const;

 private:
  std::int64_t x_bytes() const {
    return desc_.hidden * static_cast<std::int64_t>(size_of(desc_.dtype));
  }
  std::int64_t outputs() const { return outputs_of(desc_.activation, desc_.inner); }

  // The parts of rows and results.
  TensorView x_of(const RowStore& store) const { return store.part(desc_.dtype, desc_.hidden, 0); }
  TensorView grads_of(const RowStore& store) const {
    return store.part(desc_.dtype, desc_.hidden, x_bytes());
  }
  TensorView weights_of(const RowStore& store) const {
    return store.part(Dtype::s8, sizeof(float), 2 * x_bytes());
  }
  std::int64_t sums_bytes() const {
    return desc_.hidden * static_cast<std::int64_t>(size_of(desc_.wire));
  }

  void write_row(std::int64_t row, std::byte* to) const override;
  const float* slot_weights() const override { return call_->forward.weights.data(); }
  void multiply(const RowStore& store, const Work& work, PollStep poll_step) override;
  void finish(const RowStore& store, std::span<const std::int64_t> counts,
              PollStep poll_step) override;

  struct Part {
    std::int64_t first_group;
    std::span<const std::int64_t> counts;
    std::int64_t begin;
    std::int64_t end;
  };
  void multiply_piece(const RowStore& store, const Part& part, PollStep poll_step);
  void activate_rows(const RowStore& store, const Part& part);
  float weight_gradient(const RowStore& store, std::int64_t row, std::int64_t group,
                        float of_activation) const;
  // One of this rank's experts, and its rows in the store.
  struct Expert {
    std::size_t index;
    std::int64_t begin;
    std::int64_t end;
  };
  void add_gradients(const RowStore& store, const Expert& expert, PollStep poll_step);
  void sum_down_bias(const RowStore& store, const Expert& rows, const TensorView& to) const;
  void collect();

  ExpertsDesc desc_;
  ExpertsOptions options_;
  Communicator::State& state_;
  const Placement& placement_;
  ExpertExchange exchange_;
  GroupedGemm up_;
  GroupedGemm turned_down_;
  GroupedGemm turned_up_;
  nn::Workspace workspace_;
  const ExpertsBackward* call_ = nullptr;
  std::vector<Weight> up_turned_, down_turned_;
  std::vector<ConstTensorView> down_biases_;

  Buffer inputs_;   // h of all rows
  Buffer grads_;    // du of all rows
  Buffer outputs_;  // u of a piece
  Buffer backs_;    // dh of a piece
};

}  // namespace plait::experts
