// The inputs of a weight are shared out over the ranks. Each multiplies those that it holds, and
// the sum over ranks, which all of them need, is made while they multiply.
#include <plait/plait.h>

#include <cstdio>
#include <vector>

int main() try {
  const std::int64_t tokens = 64, outputs = 256, inputs = 500;  // inputs: of each rank
  plait::Communicator comm = plait::Communicator::connect();
  std::vector<float> x(tokens * inputs, 0.5F);
  std::vector<float> w(outputs * inputs, static_cast<float>(comm.rank() + 1));
  std::vector<float> y(tokens * outputs);  // on every rank, to the same bit
  const auto matrix = [](std::vector<float>& of, std::int64_t columns) {
    return plait::TensorView{.data = of.data(),
                             .rows = std::ssize(of) / columns,
                             .cols = columns,
                             .row_stride = columns};
  };
  const plait::PackedWeight weight(
      {.view = matrix(w, inputs), .layout = plait::WeightLayout::out_in});
  plait::matmul_all_reduce(matrix(x, inputs), weight, matrix(y, outputs), comm);
  std::printf("rank %d of %d: y[2][3] = %g\n", comm.rank(), comm.world(), y[2 * outputs + 3]);
} catch (const plait::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
