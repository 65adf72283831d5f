// Automatic plans. The first calls of a problem try several plans, the same one on all ranks in the
// same call. From then on all calls follow the fastest. If no time speaks against it, it is stored
// for the next start.
#include <plait/plait.h>

#include <cstdio>
#include <vector>

int main(int argc, char** argv) try {
  const std::int64_t tokens = 64, outputs = 512, inputs = 256;  // inputs: of each rank
  const int calls = 50;                                         // trials end after at most 42
  plait::Communicator comm = plait::Communicator::connect();
  // The default is plait tune's file.
  plait::AutomaticOptions options = {.online = true};
  if (argc > 1) options.cache = argv[1];
  const auto plans = plait::automatic_plans(comm, options);

  std::vector<float> x(tokens * inputs, 0.5F), y(tokens * outputs), w(outputs * inputs, 2.0F);
  const plait::PackedWeight weight({.view = plait::TensorView::of(w.data(), outputs, inputs),
                                    .layout = plait::WeightLayout::out_in});
  for (int call = 0; call < calls; ++call) {
    plait::matmul_all_reduce(plait::TensorView::of(x.data(), tokens, inputs), weight,
                             plait::TensorView::of(y.data(), tokens, outputs), comm,
                             {.plans = plans.get()});
  }

  // The plan that a prepared operator follows now.
  const plait::Op op = plait::prepare({.op = plait::Operator::matmul_all_reduce,
                                       .m = tokens,
                                       .n = outputs,
                                       .k = inputs,
                                       .x = plait::Dtype::f32,
                                       .weight = plait::Weight(weight).kind(),
                                       .out = plait::Dtype::f32},
                                      comm, {.plans = plans.get()});
  std::printf("rank %d of %d: after %d calls the plan is \"%s\"; y[2][3] = %g\n", comm.rank(),
              comm.world(), calls, plait::name(op.plan()).c_str(), y[2 * outputs + 3]);
} catch (const plait::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
