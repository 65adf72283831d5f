// A product that takes the time that a modelled device would.
#pragma once

#include <optional>

#include "comm/stand_in.h"
#include "comm/virtual_clock.h"
#include "predict/device.h"

namespace plait::predict {

class ModelledProduct final : public comm::StandIn {
 public:
  // `weight_bytes`: of an element, where that is not what the product says.
  ModelledProduct(comm::VirtualClock& clock, const Device& device,
                  std::optional<double> weight_bytes = {})
      : clock_(clock), device_(device), weight_bytes_(weight_bytes) {}

  // Where the collective is looked at alone: products are there at once.
  void leave_out() { left_out_ = true; }

  void product(const Product& product, Look look) override;

 private:
  comm::VirtualClock& clock_;
  const Device& device_;
  std::optional<double> weight_bytes_;
  bool left_out_ = false;
};

}  // namespace plait::predict
