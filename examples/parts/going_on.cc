// The last rank is killed in the middle of its work; the others go on without it, from the same
// step.
//
//   plait run -n 3 --linger 1min -- parts/going_on
#include <plait/plait.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

int main() try {
  plait::Communicator comm = plait::Communicator::connect();
  const std::vector<float> gradients(1000, 1.0F);
  std::uint64_t first = 0;  // the communicator's first step: one call a step
  while (first + comm.completed_calls() < 200) {
    try {
      const bool dies = comm.completed_calls() == 100 && comm.rank() == 2;
      if (dies) std::raise(SIGKILL);
      std::vector<float> sum = gradients;  // a copy: a call that fails has spoilt it
      plait::all_reduce({sum.data(), sum.size()}, comm);
    } catch (const plait::Error& error) {
      if (error.code() != plait::Code::peer_lost) throw;
      plait::Survivors left = comm.survivors();
      first += left.completed_calls;
      std::printf("rank %d of %d goes on as rank %d of %d from step %llu\n", comm.rank(),
                  comm.world(), left.comm.rank(), left.comm.world(),
                  static_cast<unsigned long long>(first));
      comm = std::move(left.comm);
    }
  }
} catch (const plait::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 3;
}
