#include "nn/workspace.h"

#include <gtest/gtest.h>

#include <optional>

#include "conformance/ranks.h"

namespace plait::nn {
namespace {

TEST(RoomIn, KeepsABufferThatIsLargeEnough) {
  Buffer buffer;
  const TensorView large = room_in(
      buffer, {.data = nullptr, .dtype = Dtype::f32, .rows = 8, .cols = 60, .row_stride = 64});
  EXPECT_GE(buffer.bytes(), 8U * 64 * 4);
  EXPECT_EQ(large.cols, 60);
  EXPECT_EQ(large.row_stride, 64);
  const std::size_t bytes = buffer.bytes();
  const TensorView small = room_in(
      buffer, {.data = nullptr, .dtype = Dtype::bf16, .rows = 2, .cols = 3, .row_stride = 3});
  EXPECT_EQ(small.data, large.data);
  EXPECT_EQ(buffer.bytes(), bytes);
  room_in(buffer,
          {.data = nullptr, .dtype = Dtype::f32, .rows = 800, .cols = 64, .row_stride = 64});
  EXPECT_GE(buffer.bytes(), 800U * 64 * 4);
}

TEST(AWorkspace, IsOneForEachCommunicator) {
  run_as_threads(2, [](Communicator& comm) {
    Workspace& first = Workspace::of(comm);
    EXPECT_EQ(&first, &Workspace::of(comm));
    std::optional<Communicator> other = comm.split(0, 0);
    EXPECT_NE(&first, &Workspace::of(*other));
    // A product never reads the memory that its sums go to.
    EXPECT_NE(first.partial(Dtype::f32, 4, 4).data, first.summed(Dtype::f32, 4, 4).data);
  });
}

}  // namespace
}  // namespace plait::nn
