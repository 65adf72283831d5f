// All that plait info has found out.
#pragma once

#include <string>
#include <vector>

#include "cli/host/cgroup.h"
#include "cli/host/memory.h"
#include "cli/host/processor.h"
#include "cli/host/topology.h"
#include "plait/communicator.h"

namespace plait::cli {

struct TransportFinding {
  std::string name;
  std::string summary;
  std::string refusal;  // empty: it can be used on this machine
};

struct Findings {
  std::string host;
  std::string system;  // "Linux"
  std::string kernel;
  std::string machine;  // "x86_64"
  Processor processor;
  Topology topology;
  Memory memory;
  CgroupLimits limits;
  Place place;
  std::string misplaced;  // why the environment's place cannot be read; empty: it can
  std::vector<TransportFinding> transports;
};

Findings find_out();

}  // namespace plait::cli
