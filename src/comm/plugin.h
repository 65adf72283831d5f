// Transports in shared libraries of their own, which link what a host may lack. They are loaded
// when they are asked for.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "comm/transport.h"

namespace plait::comm {

// What a plugin shows: one function with C linkage, which returns this.
struct Plugin {
  const char* build;  // as build_name(): core and plugin share C++ types
  std::unique_ptr<Transport> (*create)(const Site& site);
};
using PluginEntry = const Plugin* (*)();

struct PluginFile {
  const char* name;         // as in libplait_ucx.so
  const char* entry_point;  // the name of its function
  bool global = false;      // whether what it loads may look for its libraries' symbols
};

struct LoadedPlugin {
  const Plugin* plugin = nullptr;
  std::string refusal = {};  // why there is none
};

// Where the plugin is; null: nowhere that is searched.
std::optional<std::filesystem::path> find_plugin(const PluginFile& file);

// The plugin stays loaded until the process ends.
LoadedPlugin load_plugin(const PluginFile& file);

// Whether the process has loaded a shared library of this name, by whatever way.
bool is_loaded(const char* library);

}  // namespace plait::comm
