#include "cli/info/findings.h"

#include <sys/utsname.h>

#include <fstream>
#include <iterator>

#include "comm/transports.h"
#include "plait/error.h"

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

}  // namespace

Findings find_out() {
  Findings findings = {};
  utsname names = {};
  uname(&names);
  findings.host = names.nodename;
  findings.system = names.sysname;
  findings.kernel = names.release;
  findings.machine = names.machine;
  std::ifstream cpuinfo("/proc/cpuinfo");
  const std::string text(std::istreambuf_iterator<char>(cpuinfo), {});
  findings.processor = parse_processor(text, findings.machine);
  findings.topology = read_topology();
  findings.memory = read_memory();
  findings.limits = read_cgroup_limits();
  find_place(findings);
  for (const comm::TransportEntry& entry : comm::transports()) {
    findings.transports.push_back(
        {.name = entry.name, .summary = entry.summary, .refusal = entry.available().refusal});
  }
  return findings;
}

}  // namespace plait::cli
