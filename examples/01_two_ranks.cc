// The inputs of a weight are shared out over the ranks. Each multiplies those that it holds, and
// the sum over ranks, which all of them need, is made while they multiply.
//
//   plait run -n 2 -- 01_two_ranks
#include <plait/plait.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

constexpr std::size_t kTokens = 64, kInputs = 1000, kOutputs = 256;

static plait::TensorView matrix(std::vector<float>& values, std::size_t columns) {
  const auto cols = static_cast<std::int64_t>(columns);
  const auto rows = static_cast<std::int64_t>(values.size() / columns);
  return {.data = values.data(), .rows = rows, .cols = cols, .row_stride = cols};
}

int main() try {
  plait::Communicator comm = plait::Communicator::connect();
  const auto [first, count] = plait::balanced_shard(kInputs, comm.rank(), comm.world());
  std::vector<float> x;  // all tokens, this rank's inputs
  for (std::size_t token = 0; token < kTokens; ++token)
    for (std::size_t i = first; i < first + count; ++i)
      x.push_back(static_cast<float>((token + i) % 5));
  std::vector<float> w;  // this rank's inputs, all outputs
  for (std::size_t i = first; i < first + count; ++i)
    for (std::size_t output = 0; output < kOutputs; ++output)
      w.push_back(static_cast<float>(i * output % 7));
  const plait::PackedWeight weight(
      {.view = matrix(w, kOutputs), .layout = plait::WeightLayout::in_out});

  std::vector<float> y(kTokens * kOutputs);  // on every rank, to the same bit
  plait::matmul_all_reduce(matrix(x, count), weight, matrix(y, kOutputs), comm);

  std::vector<float> mine(kTokens * kOutputs);  // without the others
  plait::matmul(matrix(x, count), weight, matrix(mine, kOutputs), comm);
  const std::size_t at = 2 * kOutputs + 3;
  std::printf("rank %d of %d holds inputs %zu to %zu: y[2][3] = %g, of which %g are mine\n",
              comm.rank(), comm.world(), first, first + count - 1, y[at], mine[at]);
} catch (const plait::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
