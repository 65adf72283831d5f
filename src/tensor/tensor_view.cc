#include "plait/tensor_view.h"

#include <limits>

#include "base/text.h"
#include "plait/weight.h"

namespace plait {

std::string name(Device device) {
  if (device.kind == Device::Kind::cpu) return "cpu";
  return "cuda:" + std::to_string(device.index);
}

std::optional<Device> parse_device(std::string_view text) {
  constexpr std::string_view kCuda = "cuda:";
  if (text == "cpu") return kCpu;
  if (text == "cuda") return Device::cuda(0);
  if (!text.starts_with(kCuda)) return std::nullopt;
  const auto index = base::parse_int(text.substr(kCuda.size()));
  if (!index || *index < 0 || *index > std::numeric_limits<int>::max()) return std::nullopt;
  return Device::cuda(static_cast<int>(*index));
}

std::string_view name(WeightLayout layout) {
  return layout == WeightLayout::out_in ? "out_in" : "in_out";
}

}  // namespace plait
