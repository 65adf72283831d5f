#include <cstdlib>

#include <array>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/core/plugin.h"
#include "comm/engines/tcp/factory.h"
#include "comm/engines/ucx/factory.h"

namespace plait::comm::ucx {
namespace {

constexpr PluginFile kPlugin = {.name = "libplait_ucx.so", .entry_point = "plait_ucx_plugin"};

// UCX reads these variables while it is loaded, and what it then does holds for the whole process:
// it installs signal handlers, patches functions that map memory, and prints the names of variables
// UCX_... that it doesn't know. They are set only for as long as it takes to load UCX, and not
// where the user has set them.
class QuietWhileLoading {
 public:
  QuietWhileLoading() {
    constexpr std::array<std::pair<const char*, const char*>, 4> kQuiet = {
        {{"UCX_HANDLE_ERRORS", "none"},
         {"UCX_DEBUG_SIGNO", "0"},
         {"UCX_MEM_EVENTS", "n"},
         {"UCX_WARN_UNUSED_ENV_VARS", "n"}}};
    if (is_loaded("libucs.so.0")) return;  // and has read them
    for (const auto& [name, value] : kQuiet) {
      if (std::getenv(name) != nullptr) continue;
      ::setenv(name, value, 1);
      set_.push_back(name);
    }
  }
  QuietWhileLoading(const QuietWhileLoading&) = delete;
  QuietWhileLoading& operator=(const QuietWhileLoading&) = delete;
  ~QuietWhileLoading() {
    for (const char* name : set_) ::unsetenv(name);
  }

 private:
  std::vector<const char*> set_;
};

LoadedPlugin load() {
  const QuietWhileLoading quiet;
  return load_plugin(kPlugin);
}

}  // namespace

Availability available() { return {load().refusal}; }

// Its ranks meet as those of tcp do.
Availability supports(const Site& site) { return tcp::supports(site); }

std::unique_ptr<Transport> create(const Site& site) {
  const LoadedPlugin loaded = load();
  PLAIT_CHECK(loaded.head != nullptr, "the ucx transport cannot be used: ", loaded.refusal);
  return loaded.plugin()->create(site);
}

}  // namespace plait::comm::ucx
