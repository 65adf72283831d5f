// The transports that this build knows, best first.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/core/transport.h"

namespace plait::comm {

// How the ranks of a transport find each other.
enum class Meets : std::uint8_t {
  in_process,
  in_folder,   // of this host
  at_address,  // that rank 0 listens at, or that a framework passes on
  by_mpi,      // which has started them
};

struct TransportEntry {
  const char* name;
  const char* summary;
  Meets meets;
  const char* route;                           // to any peer; empty: each peer has one of its own
  Availability (*available)();                 // on this machine at all?
  Availability (*supports)(const Site& site);  // for these ranks?
  std::unique_ptr<Transport> (*create)(const Site& site);  // collective
};

std::span<const TransportEntry> transports();

std::string list_transports();  // "threads, shm, ...", for sentences

// Refuses a name that is no transport's, with the names that exist. An empty name stands for the
// best one.
void check_transport(const std::string& name);

// The transport of this name; null: there is none.
const TransportEntry* find_transport(std::string_view name);

// False for a name that is no transport's, in these two.
inline bool meets(std::string_view name, Meets how) {
  const TransportEntry* const entry = find_transport(name);
  return entry != nullptr && entry->meets == how;
}
// True if its ranks may be on several hosts: a launcher on each starts them.
inline bool crosses_hosts(std::string_view name) {
  return meets(name, Meets::at_address) || meets(name, Meets::by_mpi);
}

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
