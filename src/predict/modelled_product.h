// A product that takes the time that the modelled device would take.
#pragma once

#include <optional>

#include "comm/product_override.h"
#include "comm/virtual_clock.h"
#include "predict/device.h"

namespace plait::predict {

class ModelledProduct final : public comm::ProductOverride {
 public:
  // `weight_bytes`: per element, if the product's own value does not apply.
  ModelledProduct(comm::VirtualClock& clock, const Device& device,
                  std::optional<double> weight_bytes = {})
      : clock_(clock), device_(device), weight_bytes_(weight_bytes) {}

  // Makes products take no time, to look at the collective alone.
  void leave_out() { left_out_ = true; }

  void product(const Product& product, PollStep poll_step) override;

 private:
  comm::VirtualClock& clock_;
  const Device& device_;
  std::optional<double> weight_bytes_;
  bool left_out_ = false;
};

}  // namespace plait::predict
