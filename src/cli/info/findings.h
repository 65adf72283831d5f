// All that plait info has found out.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/processor.h"
#include "cli/host/cgroup.h"
#include "cli/host/memory.h"
#include "cli/host/topology.h"
#include "plait/communicator.h"

namespace plait::cli {

struct TransportFinding {
  std::string name;
  std::string summary;
  std::string refusal;  // empty: it can be used on this machine
};

struct BackendFinding {
  std::string name;
  std::vector<std::string> operands;            // the dtypes that it multiplies here
  std::map<std::string, std::string> refusals;  // of the others, by dtype
};

struct Findings {
  std::string host;
  std::string system;  // "Linux"
  std::string kernel;
  std::string machine;  // "x86_64"
  base::Processor processor;
  std::string instruction_set;  // that kernels may use; empty: no x86, or PLAIT_ISA is refused
  Topology topology;
  Memory memory;
  CgroupLimits limits;
  Place place;
  std::string misplaced;  // why the environment's place cannot be read; empty: it can
  std::map<std::string, std::string> settings;  // variables that are set, see find_variables()
  std::map<std::string, std::string> unknown;  // those of them that nobody reads, and why_unknown()
  std::string refused;  // the first of those values that whoever reads it refuses; empty: none
  std::vector<TransportFinding> transports;
  std::vector<BackendFinding> backends;  // of products, best first
};

Findings find_out();

}  // namespace plait::cli
