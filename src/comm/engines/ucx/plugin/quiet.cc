#include "comm/engines/ucx/plugin/quiet.h"

#include <ucs/debug/log_def.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdlib>
#include <string_view>

namespace plait::comm::ucx {
namespace {

thread_local int quiet = 0;

constexpr std::array<std::string_view, 3> kFilesOfConnections = {"sock.c", "tcp_cm.c", "tcp_ep.c"};

// UCX keeps it for the whole process, whose other threads and libraries may use UCX too.
ucs_log_func_rc_t drop_if_quiet(const char* file, unsigned /*line*/, const char* /*function*/,
                                ucs_log_level_t level, const ucs_log_component_config_t* /*of*/,
                                const char* /*message*/, std::va_list /*arguments*/) {
  const std::string_view path = file;
  const bool is_of_a_connection =
      std::any_of(kFilesOfConnections.begin(), kFilesOfConnections.end(),
                  [&](std::string_view name) { return path.ends_with(name); });
  return quiet > 0 && level == UCS_LOG_LEVEL_ERROR && is_of_a_connection ? UCS_LOG_FUNC_RC_STOP
                                                                         : UCS_LOG_FUNC_RC_CONTINUE;
}

}  // namespace

Quiet::Quiet() {
  [[maybe_unused]] static const bool is_installed = [] {
    if (std::getenv("UCX_LOG_LEVEL") == nullptr) ucs_log_push_handler(drop_if_quiet);
    return true;
  }();
  ++quiet;
}

Quiet::~Quiet() { --quiet; }

}  // namespace plait::comm::ucx
