// The transports that this build knows, best first.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/transport.h"

namespace plait::comm {

struct TransportEntry {
  const char* name;
  const char* summary;
  bool crosses_hosts;           // its ranks may be on several hosts: a launcher on each starts them
  Availability (*available)();  // on this machine at all?
  Availability (*supports)(const Site& site);              // for these ranks?
  std::unique_ptr<Transport> (*create)(const Site& site);  // collective
};

std::span<const TransportEntry> transports();

// Refuses a name that is no transport's, with the names that exist. An empty name stands for the
// best one.
void check_transport(const std::string& name);

// False for a name that is no transport's.
bool crosses_hosts(std::string_view name);

// One step of the choice of a transport.
struct Candidate {
  const TransportEntry* entry;
  bool wanted;          // it was asked for, or none was
  Availability answer;  // on this machine, for these ranks
  bool chosen;          // the first of those that are wanted and can
};

// The rule by which a transport is chosen, step by step, best first. `until_chosen` does not ask a
// transport that is not wanted or that comes after the chosen one: asking may load a plugin.
enum class Candidates { until_chosen, all };
std::vector<Candidate> walk_transports(const std::string& name, const Site& site, Candidates which);

// The one called `name`, or, when that is empty, the best that supports the site. Refuses with the
// names that exist, or with every transport's own refusal.
const TransportEntry& select_transport(const std::string& name, const Site& site);

}  // namespace plait::comm
