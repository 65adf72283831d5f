// A product that takes the time that a modelled device would.
#pragma once

#include "comm/virtual_clock.h"
#include "overlap/stand_in.h"
#include "predict/device.h"

namespace plait::predict {

class ModelledProduct final : public overlap::StandIn {
 public:
  // `fused`: all products of a call are one kernel, which is launched once.
  ModelledProduct(comm::VirtualClock& clock, const Device& device, const ProductBytes& bytes,
                  bool fused)
      : clock_(clock), device_(device), bytes_(bytes), fused_(fused) {}

  // Where the collective is looked at alone: products are there at once.
  void leave_out() { left_out_ = true; }

  void product(const Product& product, Look look) override;

 private:
  comm::VirtualClock& clock_;
  const Device& device_;
  ProductBytes bytes_;
  bool fused_;
  bool left_out_ = false;
  bool launched_ = false;
};

}  // namespace plait::predict
