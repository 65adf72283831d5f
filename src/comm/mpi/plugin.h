// What a transport plugin shows: one function with C linkage, which returns this.
#pragma once

#include <memory>

#include "comm/transport.h"

namespace plait::comm::mpi {

struct Plugin {
  const char* version;  // of plait; core and plugin share C++ types, so they must be of one build
  const char* library;  // the MPI library it was built for, for people
  std::unique_ptr<Transport> (*create)(const Site& site);
};

inline constexpr const char* kEntryPoint = "plait_mpi_plugin";
using EntryPoint = const Plugin* (*)();

}  // namespace plait::comm::mpi
