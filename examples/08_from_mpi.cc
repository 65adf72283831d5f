// A program that uses MPI hands a part of its processes to plait: the even and the odd processes
// are two groups, each with its own weight. Start it with mpirun -n 4.
#include <mpi.h>
#include <plait/mpi.h>
#include <plait/plait.h>

#include <cstdio>
#include <string>
#include <vector>

int main(int argc, char** argv) try {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  int process = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &process);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, process % 2, process, &half);
  {  // the group leaves before MPI_Finalize, which PLAIT_TRANSPORT=mpi needs
    const std::int64_t tokens = 64, outputs = 256, inputs = 500;  // inputs: of each rank
    plait::Communicator comm = plait::from_mpi(half);
    std::vector<float> x(tokens * inputs, 0.5F), y(tokens * outputs);
    std::vector<float> w(outputs * inputs, comm.rank() == 0 ? 1.0F : 2.0F);
    const plait::PackedWeight weight({.view = plait::TensorView::of(w.data(), outputs, inputs),
                                      .layout = plait::WeightLayout::out_in});
    plait::matmul_all_reduce(plait::TensorView::of(x.data(), tokens, inputs), weight,
                             plait::TensorView::of(y.data(), tokens, outputs), comm);
    std::printf("process %d is rank %d of %d over %s: y[2][3] = %g\n", process, comm.rank(),
                comm.world(), std::string(comm.transport()).c_str(), y[2 * outputs + 3]);
  }
  MPI_Comm_free(&half);
  MPI_Finalize();
} catch (const plait::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
