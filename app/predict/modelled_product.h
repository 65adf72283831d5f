// A product that takes the time that the modelled device would take.
#pragma once

#include <optional>

#include "comm/core/executor.h"
#include "predict/device.h"
#include "simulation/sim_rank.h"

namespace plait::predict {

class ModelledProduct final : public comm::Executor {
 public:
  // `weight_bytes`: per element, if the product's own value does not apply.
  ModelledProduct(comm::modelled::SimRank& rank, const Device& device,
                  std::optional<double> weight_bytes = {})
      : rank_(rank), device_(device), weight_bytes_(weight_bytes) {}

  // Makes products take no time, to see the collective alone.
  void leave_out() { left_out_ = true; }

  bool has_products() const override { return true; }
  void multiply(const comm::ProductWork& product, PollStep poll_step) override;

  // All else is the simulated rank's.
  bool run(const comm::MemoryWork& work) override { return rank_.run(work); }
  bool wait(const comm::Question& question) override { return rank_.wait(question); }
  bool poll() override { return rank_.poll(); }

 private:
  comm::modelled::SimRank& rank_;
  const Device& device_;
  std::optional<double> weight_bytes_;
  bool left_out_ = false;
};

}  // namespace plait::predict
