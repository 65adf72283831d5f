#include "comm/engines/ucx/plugin/sockets.h"

#include <sys/socket.h>

#include <exception>
#include <fstream>
#include <string>

namespace plait::comm::ucx {
namespace {

// The worker's descriptor, that of each network interface, and the interface's connections.
constexpr int kLevels = 2;

void end_sending(int descriptor, int levels) {
  std::ifstream watched("/proc/self/fdinfo/" + std::to_string(descriptor));
  for (std::string word; watched >> word;) {
    int target = -1;
    if (word != "tfd:" || !(watched >> target)) continue;
    // It fails for what is no connection.
    if (::shutdown(target, SHUT_WR) != 0 && levels > 1) end_sending(target, levels - 1);
  }
}

}  // namespace

void end_sending(int worker_descriptor) noexcept try {
  end_sending(worker_descriptor, kLevels);
} catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory; it may take longer
}

}  // namespace plait::comm::ucx
