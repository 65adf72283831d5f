// Uses the installed library as a program of its own: ranks add up, and an exception crosses the
// library's boundary.
#include <plait/plait.h>

#include <iostream>
#include <vector>

int main() {
  plait::run_in_threads(2, [](plait::Communicator& comm) {
    std::vector<float> sums(5, static_cast<float>(comm.rank() + 1));
    plait::all_reduce({sums.data(), sums.size()}, comm);
    if (sums != std::vector<float>(5, 3.0F)) comm.abort("1 + 2 is not 3 here");
    plait::barrier(comm);
  });
  try {
    plait::run_in_threads(0, [](plait::Communicator&) {});
  } catch (const plait::Error& error) {
    std::cout << "plait " << plait::kVersion << ": " << plait::name(error.code()) << ": "
              << error.what() << '\n';
    return 0;
  }
  std::cout << "a group of no ranks was not refused\n";
  return 1;
}
