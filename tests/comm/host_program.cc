// A rank that waits until something happens to another one, and says what it heard and when.
//
//   host_program stream     sums up a megabyte again and again
//   host_program idle       waits for the last rank, which does nothing
//   host_program go_on      does the same as stream, and after a loss goes on with the survivors
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "plait/collectives.h"

namespace {

void sum_up(plait::Communicator& comm) {
  std::vector<float> sums(1 << 18, 1.0F);
  for (;;) plait::all_reduce({sums.data(), sums.size()}, comm);
}

void go_on(plait::Communicator& comm) {
  try {
    sum_up(comm);
  } catch (const plait::Error& error) {
    std::printf("%s\n", std::string(plait::name(error.code())).c_str());
    std::fflush(stdout);
  }
  plait::Survivors left = comm.survivors();
  float ones = 1;
  plait::all_reduce({&ones, 1}, left.comm);
  std::printf("rank %d of %d goes on, sum %g, without", left.comm.rank(), left.comm.world(), ones);
  for (const int lost : left.lost) std::printf(" %d", lost);
  std::printf("\n");
}

}  // namespace

int main(int count, char** words) try {
  plait::Communicator comm = plait::Communicator::connect();
  plait::barrier(comm);
  std::printf("ready\n");
  std::fflush(stdout);
  const std::string what = count > 1 ? words[1] : "stream";
  if (what == "go_on") {
    go_on(comm);
    return 0;
  }
  if (what == "idle" && comm.rank() == comm.world() - 1) {
    for (;;) ::pause();
  }
  if (what == "stream") sum_up(comm);
  for (;;) plait::barrier(comm);
} catch (const plait::Error& error) {
  std::printf("%s, culprit %d: %s\n", std::string(plait::name(error.code())).c_str(),
              error.culprit(), error.what());
}
