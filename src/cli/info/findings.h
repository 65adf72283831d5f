// Everything that plait info has found.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/processor.h"
#include "launch/cgroup.h"
#include "launch/topology.h"
#include "measure/memory.h"
#include "overlap/device.h"
#include "plait/communicator.h"

namespace plait::cli {

struct TransportFinding {
  std::string name;
  std::string summary;
  std::string refusal;  // empty: it can be used on this machine
};

// The facts that other hosts need to know of this one.
struct NetworkFinding {
  std::string interface;               // that PLAIT_INTERFACE names; empty: all are used
  std::vector<std::string> addresses;  // in the order in which others try them
  std::string rendezvous;              // where rank 0 listens; empty: no variable says
  bool has_secret = false;
  std::string problem;  // why this cannot be read; empty: it can
};

struct BackendFinding {
  std::string name;
  std::vector<std::string> operands;            // the dtypes that it multiplies here
  std::map<std::string, std::string> refusals;  // for the other dtypes
};

struct Findings {
  std::string host;
  std::string system;  // "Linux"
  std::string kernel;
  std::string machine;  // "x86_64"
  base::Processor processor;
  // that kernels may use; empty: not an x86 processor, or PLAIT_ISA is refused
  std::string instruction_set;
  launch::Topology topology;
  measure::Memory memory;
  launch::CgroupLimits limits;
  Place place;
  std::string misplaced;  // why the place in the environment cannot be read; empty: it can
  NetworkFinding network;
  std::map<std::string, std::string>
      settings;  // variables that are set, see environment::find_variables()
  // variables that plait does not read, with why_unknown()
  std::map<std::string, std::string> unknown;
  std::string refused;  // the first error in those values; empty: none
  std::vector<TransportFinding> transports;
  std::vector<BackendFinding> backends;  // of products, best first
  std::string gpu_refusal;               // why no GPU can be used; empty: some can
  std::vector<overlap::DeviceInfo> gpus;
};

Findings find_out();

}  // namespace plait::cli
