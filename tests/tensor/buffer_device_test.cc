// The device of a buffer's memory.
#include <gtest/gtest.h>

#include <string>

#include "plait/buffer.h"
#include "plait/error.h"

namespace plait {
namespace {

TEST(BufferDevice, IsTheCpuUnlessTold) {
  const Buffer buffer = Buffer::for_tensor(Dtype::f32, 2, 3, {.huge_pages = false});
  EXPECT_EQ(buffer.device(), kCpu);
  EXPECT_EQ(buffer.view(Dtype::f32, 2, 3).device, kCpu);
  EXPECT_EQ(Buffer().device(), kCpu);
}

TEST(BufferDevice, RefusesAnother) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{64}}) {
    try {
      const Buffer buffer(bytes, {.device = Device::cuda(3)});
      ADD_FAILURE() << "made " << bytes << " bytes";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      EXPECT_EQ(std::string(error.what()), "Buffer: this build cannot allocate memory on cuda:3");
    }
  }
}

}  // namespace
}  // namespace plait
