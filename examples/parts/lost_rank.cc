// The last rank is killed in the middle of its work; the others get an error about it and print it.
//
//   plait run -n 3 -- parts/lost_rank
#include <plait/plait.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

int main() try {
  plait::Communicator comm = plait::Communicator::connect();
  std::vector<float> gradients(1000, 1.0F);
  for (int step = 0;; ++step) {
    const bool dies = step == 100 && comm.rank() == comm.world() - 1;
    if (dies) std::raise(SIGKILL);
    plait::all_reduce({gradients.data(), gradients.size()}, comm);
  }
} catch (const plait::Error& error) {
  const std::string code(plait::name(error.code()));
  std::fprintf(stderr, "%s, culprit %d: %s\n", code.c_str(), error.culprit(), error.what());
  return 3;
}
