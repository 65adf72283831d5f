// A layer of experts: its exchange and its products, one call after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "experts/backward.h"
#include "experts/checks.h"
#include "experts/exchange.h"
#include "experts/placement.h"
#include "experts/products.h"
#include "plait/experts.h"

namespace plait {

class ExpertParallelMLP::State final : private experts::RowUser {
 public:
  State(const ExpertsDesc& desc, Communicator& comm, const ExpertsOptions& options);

  const ExpertsDesc& desc() const { return desc_; }
  Schedule schedule() const { return options_.schedule; }
  const experts::Placement& placement() const { return placement_; }
  const ExpertRows& rows() const { return shown_; }
  void forward(const ExpertsForward& call);
  void backward(const ExpertsBackward& call);
  std::size_t held_bytes() const {
    return products_.held_bytes() + exchange_.held_bytes() +
           (backward_ ? backward_->held_bytes() : 0);
  }

 private:
  bool weighs_rows() const { return desc_.weights_at == ExpertWeightsAt::activation; }
  Tag tag_of(const ExpertsForward& call) const;
  template <class Make>
  void make(Make&& make);
  void write_row(std::int64_t row, std::byte* to) const override;
  const float* slot_weights() const override;
  void multiply(const experts::RowStore& store, const experts::Work& work,
                experts::PollStep poll_step) override;
  void work_beside(experts::PollStep poll_step) override;
  void combine();
  void note_rows();

  ExpertsDesc desc_;
  ExpertsOptions options_;
  Communicator::State& state_;
  experts::Placement placement_;
  experts::Products products_;
  experts::ExpertExchange exchange_;
  std::uint32_t fingerprint_;
  const ExpertsForward* call_ = nullptr;
  std::unique_ptr<experts::Backward> backward_;  // from the first on
  ExpertRows shown_;
};

}  // namespace plait
