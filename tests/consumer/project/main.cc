// Uses the installed library as a program of its own: an exception crosses its boundary.
#include <plait/plait.h>

#include <iostream>

int main() {
  try {
    throw plait::Error(plait::Code::peer_lost, "rank 3 left", 3);
  } catch (const plait::Error& error) {
    std::cout << "plait " << plait::kVersion << ": " << plait::name(error.code()) << ", rank "
              << error.culprit() << '\n';
    return error.culprit() == 3 ? 0 : 1;
  }
}
