// Transports and devices in shared libraries of their own, which link what a host may lack. Each is
// loaded when it is asked for.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "comm/core/transport.h"

namespace plait::comm {

// A plugin shows one function with C linkage. What that returns begins with this.
struct PluginHead {
  const char* build;  // as build_name(): core and plugin share C++ types
};
using PluginEntry = const PluginHead* (*)();

// The functions of a transport's plugin.
struct Plugin : PluginHead {
  std::unique_ptr<Transport> (*create)(const Site& site);
};

struct PluginFile {
  const char* name;         // as in libplait_ucx.so
  const char* entry_point;  // the name of its function
  bool global = false;      // true if modules that it loads may look for its libraries' symbols
};

struct LoadedPlugin {
  const PluginHead* head = nullptr;
  std::string refusal = {};  // why there is none

  // The functions of a transport's plugin.
  const Plugin* plugin() const { return static_cast<const Plugin*>(head); }
};

// The plugin's path; null: no searched folder has it.
std::optional<std::filesystem::path> find_plugin(const PluginFile& file);

// The plugin stays loaded until the process ends.
LoadedPlugin load_plugin(const PluginFile& file);

// True if the process has loaded a shared library of this name, by whatever way.
bool is_loaded(const char* library);

}  // namespace plait::comm
