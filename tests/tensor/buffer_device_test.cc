// The device of a buffer's memory.
#include <gtest/gtest.h>

#include <string>

#include "plait/buffer.h"
#include "tensor/sentence_of.h"

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
    EXPECT_EQ(sentence_of([&] { const Buffer buffer(bytes, {.device = Device::cuda(3)}); }),
              "Buffer: this build cannot allocate memory on cuda:3");
  }
}

}  // namespace
}  // namespace plait
