#include "nn/row_exchange.h"

#include <gtest/gtest.h>

#include "conformance/ranks.h"
#include "gemm/matrix.h"
#include "tensor/compare.h"
#include "tensor/copy_rows.h"

namespace plait::nn {
namespace {

// A matrix for collectives: nothing lies between its rows.
struct Dense {
  Dense(Dtype dtype, std::int64_t rows, std::int64_t cols, std::uint64_t seed = 0)
      : memory(Buffer::for_tensor(dtype, rows, cols)), view(memory.view(dtype, rows, cols)) {
    tensor::fill_random(view, seed);
  }

  Buffer memory;
  TensorView view;
};

TEST(SpacedRows, TakeWholeCacheLines) {
  EXPECT_EQ(spaced(Dtype::bf16, 100), 128);
  EXPECT_EQ(spaced(Dtype::f32, 100), 112);
  EXPECT_EQ(spaced(Dtype::bf16, 64), 64);
  EXPECT_EQ(spaced(Dtype::bf16, 0), 0);
}

// Rows with gaps are copied before they travel, and shards may be of different sizes.
TEST(Rows, AreGatheredFromEveryRank) {
  run_as_threads(3, [](Communicator& comm) {
    const Dense all(Dtype::bf16, 8, 5, 1);
    const Matrix wide(Dtype::bf16, 8, 9, 2);
    const Range own = shard_of(8, comm);
    const TensorView part = wide.view.row_range(own.begin, own.end).column_range(0, 5);
    tensor::copy_rows(all.view.row_range(own.begin, own.end), part);
    const Dense got(Dtype::bf16, 8, 5);
    start_gathering(part, got.view, comm).wait();
    EXPECT_TRUE(tensor::same_bits(got.view, all.view));
  });
}

TEST(Rows, AreSummedForTheirOwnerOrForAll) {
  run_as_threads(2, [](Communicator& comm) {
    const Dense partial(Dtype::f32, 5, 4, 1);
    const Dense all(Dtype::f32, 5, 4);
    start_summing(partial.view, all.view, Sum::all, comm).wait();
    const Range own = shard_of(5, comm);
    const Dense shard(Dtype::f32, own.end - own.begin, 4);
    start_summing(partial.view, shard.view, Sum::shard, comm).wait();
    for (std::int64_t j = 0; j < 4; ++j) {
      EXPECT_EQ(at(all.view, 2, j), 2 * at(partial.view, 2, j));
      EXPECT_EQ(at(shard.view, 0, j), 2 * at(partial.view, own.begin, j));
    }
  });
}

}  // namespace
}  // namespace plait::nn
