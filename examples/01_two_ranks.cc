// The inputs of a weight are sharded over the ranks. Each rank multiplies its share, and while it
// does, the results are summed over the ranks. Every rank gets the sum.
#include <plait/plait.h>

#include <cstdio>
#include <vector>

int main() try {
  const std::int64_t tokens = 64, outputs = 256, inputs = 500;  // inputs: of each rank
  plait::Communicator comm = plait::Communicator::connect();
  std::vector<float> x(tokens * inputs, 0.5F), y(tokens * outputs);
  std::vector<float> w(outputs * inputs, comm.rank() == 0 ? 1.0F : 2.0F);
  const plait::PackedWeight weight({.view = plait::TensorView::of(w.data(), outputs, inputs),
                                    .layout = plait::WeightLayout::out_in});
  plait::matmul_all_reduce(plait::TensorView::of(x.data(), tokens, inputs), weight,
                           plait::TensorView::of(y.data(), tokens, outputs), comm);
  std::printf("rank %d of %d: y[2][3] = %g\n", comm.rank(), comm.world(), y[2 * outputs + 3]);
} catch (const plait::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
