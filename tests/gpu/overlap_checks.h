// The parts of the program overlap_check. Each prints figures and failures, and returns the
// program's exit status.
#pragma once

#include <string>

namespace plait::gpu {

int check_correct(int cases, unsigned seed);
int measure_cost(const std::string& which);
int measure_link();
int measure_pcie();
int check_waits();
int check_graph();

// Forks, so it is called before anything of CUDA.
int check_processes();

}  // namespace plait::gpu
