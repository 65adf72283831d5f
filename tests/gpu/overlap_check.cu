// Checks plait's operators on one GPU, with one to eight ranks on it, and measures them.
//
//   overlap_check correct [cases] [seed]   the same bits in every schedule, and the right ones
//   overlap_check cost [few]               the fused kernels beside cuBLASLt's best product
//   overlap_check link                     overlap over an emulated link
//   overlap_check pcie                     overlap over the real link to the CPU's memory
//   overlap_check waits                    late and lost ranks
//   overlap_check graph                    calls in CUDA graphs
//   overlap_check processes                two processes with a rank each
//
// Exit status: 0 all is right, 1 something is not, 2 a call of CUDA failed, 77 there is no GPU.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "gpu/overlap_cases.cuh"
#include "gpu/overlap_checks.h"

int main(int argc, char** argv) {
  using namespace plait::gpu;
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  const std::string verb = argc > 1 ? argv[1] : "correct";
  if (verb == "processes") return check_processes();
  if (!start_gpu()) return 77;
  if (verb == "correct")
    return check_correct(argc > 2 ? std::atoi(argv[2]) : 200,
                         argc > 3 ? static_cast<unsigned>(std::atoi(argv[3])) : 1);
  if (verb == "cost") return measure_cost(argc > 2 ? argv[2] : "");
  if (verb == "link") return measure_link();
  if (verb == "pcie") return measure_pcie();
  if (verb == "waits") return check_waits();
  if (verb == "graph") return check_graph();
  std::printf("there is no check %s\n", verb.c_str());
  return 2;
}
