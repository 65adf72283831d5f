// A rank that waits until something happens to another one, and says what it heard and when.
//
//   host_program stream     sums up a megabyte again and again
//   host_program idle       waits for the last rank, which does nothing
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "plait/collectives.h"

int main(int count, char** words) try {
  plait::Communicator comm = plait::Communicator::connect();
  plait::barrier(comm);
  std::printf("ready\n");
  std::fflush(stdout);
  const std::string what = count > 1 ? words[1] : "stream";
  if (what == "idle" && comm.rank() == comm.world() - 1) {
    for (;;) ::pause();
  }
  std::vector<float> sums(1 << 18, 1.0F);
  for (;;) {
    if (what == "idle") {
      plait::barrier(comm);
    } else {
      plait::all_reduce({sums.data(), sums.size()}, comm);
    }
  }
} catch (const plait::Error& error) {
  std::printf("%s, culprit %d: %s\n", std::string(plait::name(error.code())).c_str(),
              error.culprit(), error.what());
}
