#include "cli/info/findings.h"

#include <sys/utsname.h>

#include "comm/transports.h"
#include "plait/error.h"
#include "plait/gemm.h"

namespace plait::cli {
namespace {

void find_place(Findings& findings) {
  try {
    findings.place = place_from_environment();
  } catch (const Error& error) {
    findings.place = {.rank = 0, .world = 1};
    findings.misplaced = error.what();
  }
}

// A backend is asked about both operands there are, f32 and bf16, in the same walk that products
// make.
std::vector<BackendFinding> find_backends() {
  std::vector<BackendFinding> backends;
  for (const Dtype operand : {Dtype::bf16, Dtype::f32}) {
    const std::string dtype(name(operand));
    const auto walk =
        explain_gemm({.m = 1, .n = 1, .k = 1, .x = operand, .weight = operand, .out = operand});
    backends.resize(walk.size());
    for (std::size_t i = 0; i < walk.size(); ++i) {
      backends[i].name = walk[i].backend;
      if (walk[i].refusal.empty())
        backends[i].operands.push_back(dtype);
      else
        backends[i].refusals[dtype] = walk[i].refusal;
    }
  }
  return backends;
}

}  // namespace

Findings find_out() {
  Findings findings = {};
  utsname names = {};
  uname(&names);
  findings.host = names.nodename;
  findings.system = names.sysname;
  findings.kernel = names.release;
  findings.machine = names.machine;
  findings.processor = read_processor(findings.machine);
  findings.topology = read_topology();
  findings.memory = read_memory();
  findings.limits = read_cgroup_limits();
  find_place(findings);
  for (const comm::TransportEntry& entry : comm::transports()) {
    findings.transports.push_back(
        {.name = entry.name, .summary = entry.summary, .refusal = entry.available().refusal});
  }
  findings.backends = find_backends();
  return findings;
}

}  // namespace plait::cli
