// What a transport plugin shows: one function with C linkage, which returns this.
#pragma once

#include <memory>

#include "comm/transport.h"

namespace plait::comm::mpi {

struct Plugin {
  const char* build;    // as build_name(): core and plugin share C++ types
  const char* library;  // the MPI library it was built for, for people
  std::unique_ptr<Transport> (*create)(const Site& site);
};

inline constexpr const char* kEntryPoint = "plait_mpi_plugin";
using EntryPoint = const Plugin* (*)();

}  // namespace plait::comm::mpi
