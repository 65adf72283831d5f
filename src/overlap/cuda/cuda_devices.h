// The GPUs of this host, as CUDA's runtime knows them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "overlap/device.h"

namespace plait::overlap {

class CudaDevices final : public Devices {
 public:
  std::string refusal() const override;
  std::vector<DeviceInfo> list() const override;
  std::string refusal_of(const void* data, Device device) const override;
  std::string refusal_of(Stream stream, Device device) const override;
  std::string refusal_of(const DeviceOpSpec& spec) const override;
  std::unique_ptr<OpImpl> make_op(const DeviceOpSpec& spec, Communicator& comm) const override;
};

}  // namespace plait::overlap
