// An operator on a GPU.
#pragma once

#include <memory>
#include <string>

#include "overlap/device.h"

namespace plait::overlap::cuda {

// Why there is no such operator. Empty: there is one.
std::string refusal_of(const DeviceOpSpec& spec);

std::unique_ptr<OpImpl> make_op(const DeviceOpSpec& spec, Communicator& comm);

}  // namespace plait::overlap::cuda
