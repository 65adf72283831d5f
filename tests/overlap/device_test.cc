// If no GPU can be used, there is a reason in words.
#include "overlap/device.h"

#include <gtest/gtest.h>

#include "conformance/ranks.h"
#include "overlap/cuda/driver.h"

namespace plait::overlap {
namespace {

TEST(Devices, AreThereOrThereIsAReason) {
  const LoadedDevices& loaded = load_devices();
  EXPECT_EQ(&load_devices(), &loaded);
  EXPECT_EQ(loaded.devices == nullptr, !loaded.refusal.empty());
  EXPECT_EQ(loaded.devices == nullptr, loaded.list.empty());
  EXPECT_EQ(loaded_devices(), loaded.devices);
}

TEST(Devices, AreRefusedByTheirNumber) {
  const auto far = [] { devices_for(Device::cuda(1000), "test"); };
  const LoadedDevices& loaded = load_devices();
  const std::string ending = loaded.devices == nullptr ? loaded.refusal
                             : loaded.list.size() == 1 ? "there is one GPU, cuda:0"
                                                       : "there are GPUs from cuda:0 to cuda:" +
                                                             std::to_string(loaded.list.size() - 1);
  EXPECT_EQ(std::string(expect_error(Code::invalid_argument, far).what()),
            "test: cuda:1000 cannot be used: " + ending);
}

TEST(Driver, IsRefusedWhereThereIsNoneOrItIsTooOld) {
  EXPECT_EQ(refusal_of_driver(0, 13000), "there is no driver for NVIDIA GPUs here");
  EXPECT_EQ(refusal_of_driver(12040, 13000),
            "the driver is for CUDA 12.4, and plait needs one for 13.0 or later");
  EXPECT_EQ(refusal_of_driver(13000, 13000), "");
  EXPECT_EQ(refusal_of_driver(13010, 13000), "");
}

}  // namespace
}  // namespace plait::overlap
