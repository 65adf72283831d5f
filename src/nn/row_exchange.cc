#include "nn/row_exchange.h"

#include <cstddef>
#include <vector>

#include "base/round_up.h"
#include "ops/shapes.h"
#include "tensor/copy_rows.h"

namespace plait::nn {
namespace {

template <class View>
auto elements_of(const View& view) {
  using Result = std::conditional_t<std::is_same_v<View, TensorView>, Elements, ConstElements>;
  return Result(view.data, static_cast<std::size_t>(view.rows * view.cols), view.dtype);
}

// Elements of each rank's shard.
std::vector<std::size_t> counts_of(const ConstTensorView& all, const Communicator& comm) {
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < comm.world(); ++rank) {
    const std::int64_t rows = ops::share_of(all.rows, rank, comm.world());
    counts.push_back(static_cast<std::size_t>(rows * all.cols));
  }
  return counts;
}

}  // namespace

Range shard_of(std::int64_t rows, const Communicator& comm) {
  return ops::shard_of(rows, comm.rank(), comm.world());
}

std::int64_t spaced(Dtype dtype, std::int64_t cols) {
  const auto line = static_cast<std::int64_t>(64 / size_of(dtype));
  return base::round_up(cols, line);
}

Pending start_gathering(const ConstTensorView& own, const TensorView& all, Communicator& comm) {
  ConstTensorView from = own;
  if (!own.is_contiguous()) {
    const Range rows = shard_of(all.rows, comm);
    const TensorView place = all.row_range(rows.begin, rows.end);
    tensor::copy_rows(own, place);
    from = place;
  }
  return start_all_gather(elements_of(from), elements_of(all), comm, counts_of(all, comm));
}

Pending start_summing(const ConstTensorView& partial, const TensorView& to, Sum sum,
                      Communicator& comm) {
  if (sum == Sum::all) return start_all_reduce(elements_of(partial), elements_of(to), comm);
  return start_reduce_scatter(elements_of(partial), elements_of(to), comm,
                              counts_of(partial, comm));
}

}  // namespace plait::nn
