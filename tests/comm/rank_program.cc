// The smallest program of ranks, for launchers to start: each says where it is, and their sum.
#include <iostream>
#include <sstream>
#include <string>

#include "plait/collectives.h"

int main() {
  try {
    plait::Communicator comm = plait::Communicator::connect();
    auto sum = static_cast<float>(comm.rank() + 1);
    plait::all_reduce({&sum, 1}, comm);
    std::ostringstream line;
    line << "rank " << comm.rank() << " of " << comm.world() << ", started by "
         << plait::place_from_environment().launcher << ", over " << comm.transport()
         << ": the sum is " << sum << '\n';
    std::cout << line.str() << std::flush;
  } catch (const plait::Error& error) {
    // In one piece: other ranks write to the same pipe.
    std::cerr << std::string(plait::name(error.code())) + ": " + error.what() + '\n';
    return error.code() == plait::Code::peer_lost ? 3 : 2;
  }
}
