#include "cli/info/findings.h"

#include <sys/utsname.h>

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "base/env.h"
#include "base/instruction_set.h"
#include "comm/tcp/address.h"
#include "comm/tcp/rendezvous.h"
#include "comm/transports.h"
#include "environment/variables.h"
#include "plait/error.h"
#include "plait/gemm.h"
#include "plait/settings.h"

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

void find_network(NetworkFinding& network) try {
  network.interface = base::env("PLAIT_INTERFACE").value_or("");
  const auto rendezvous = comm::tcp::rendezvous_from_environment();
  if (rendezvous) network.rendezvous = base::sentence(rendezvous->host, " port ", rendezvous->port);
  network.addresses = comm::tcp::local_hosts("");
  network.has_secret = !comm::tcp::secret_from_environment().empty();
} catch (const Error& error) {
  network.problem = error.what();
}

// Lists backends in the order in which they are tried for products of bf16, each only once.
std::vector<BackendFinding> find_backends() {
  std::vector<BackendFinding> backends;
  for (const GemmChoice& choice : explain_gemm({.m = 1, .n = 1, .k = 1})) {
    const auto same = [&](const BackendFinding& backend) { return backend.name == choice.backend; };
    auto backend = std::find_if(backends.begin(), backends.end(), same);
    if (backend == backends.end())
      backend = backends.insert(backend, {.name = choice.backend, .operands = {}, .refusals = {}});
    const std::string operand(name(choice.operand));
    if (choice.refusal.empty())
      backend->operands.push_back(operand);
    else
      backend->refusals[operand] = choice.refusal;
  }
  return backends;
}

// Finds the backends that kernels may use. None can be chosen if PLAIT_ISA is refused.
void find_kernels(Findings& findings) {
  try {
    const base::InstructionSet set =
        std::min(base::processor_instruction_set(), base::instruction_set_limit());
    if (findings.machine == "x86_64") findings.instruction_set = name(set);
    findings.backends = find_backends();
  } catch (const Error&) {
    findings.backends.clear();  // why_refused() reports the error
  }
}

// The first error that a program would get that reads the settings, connects and multiplies.
std::string why_refused() {
  try {
    check_environment();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string summary_of(const comm::TransportEntry& entry) {
  std::string summary = entry.summary;
  const std::string_view name = entry.name;
  if (name != "tcp" && name != "ucx") return summary;
  return summary + (base::env("PLAIT_SECRET")
                        ? "; each rank proves that it knows PLAIT_SECRET"
                        : "; the network is trusted, because PLAIT_SECRET is not set, except where "
                          "ranks meet through a framework's store");
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
  findings.processor = base::read_processor();
  findings.topology = launch::read_topology();
  findings.memory = measure::read_memory();
  findings.limits = launch::read_cgroup_limits();
  find_place(findings);
  find_network(findings.network);
  findings.settings = environment::find_variables();
  for (const auto& [variable, value] : findings.settings) {
    if (const std::string why = environment::why_unknown(variable); !why.empty())
      findings.unknown[variable] = why;
  }
  findings.refused = why_refused();
  for (const comm::TransportEntry& entry : comm::transports()) {
    findings.transports.push_back(
        {.name = entry.name, .summary = summary_of(entry), .refusal = entry.available().refusal});
  }
  find_kernels(findings);
  findings.gpu_refusal = overlap::load_devices().refusal;
  findings.gpus = overlap::load_devices().list;
  return findings;
}

}  // namespace plait::cli
