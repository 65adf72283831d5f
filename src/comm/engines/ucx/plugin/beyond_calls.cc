#include "comm/engines/ucx/plugin/beyond_calls.h"

#include <sys/socket.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <string_view>

#include "base/text.h"

namespace plait::comm::ucx {
namespace {

constexpr const char* kVariable = "UCX_RNDV_THRESH";

// Newer versions print "intra:auto,inter:auto" for "auto".
bool is_auto(std::string_view value) {
  const auto words = base::split(value, ',');
  return std::all_of(words.begin(), words.end(), [](std::string_view word) {
    return word == "auto" || word.ends_with(":auto");
  });
}

// The worker's descriptor, that of each network interface, and the interface's connections.
constexpr int kLevels = 2;

// The kernel names what an epoll descriptor watches, and UCX watches its connections by one that
// the worker's descriptor watches.
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

bool is_threshold_set(const ucp_config_t* config) {
  if (std::getenv(kVariable) != nullptr) return true;
  const std::string text = printed(
      [&](std::FILE* stream) { ucp_config_print(config, stream, "", UCS_CONFIG_PRINT_CONFIG); });
  for (const std::string_view line : base::split(text, '\n')) {
    const auto words = base::split(line, '=');
    if (words.size() == 2 && words[0] == kVariable) return !is_auto(words[1]);
  }
  return false;
}

void end_sending(int worker_descriptor) noexcept try {
  end_sending(worker_descriptor, kLevels);
} catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory; it may take longer
}

}  // namespace plait::comm::ucx
