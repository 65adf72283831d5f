// The options of plait run.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/cpu_binding.h"
#include "launch/hosts.h"

namespace plait::launch {

struct Launch {
  std::string speaker = "plait run";  // the command that the user typed, before each message
  std::string path;                   // the path of the program
  std::vector<std::string> words;     // the program's arguments, with its name first
  std::vector<CpuBinding> bindings;   // one for each rank
  RunPart part;                       // which ranks these are
  bool has_caller = false;            // on another host, which writes its standard input
  bool prefix = false;
  bool verbose = false;
  // For another verb than run: its ranks say why they exit, and the status of rank 0 counts.
  bool is_for_verb = false;
  base::Nanoseconds limit = 0;                  // for the whole run; 0: none
  base::Nanoseconds grace = 5 * base::kSecond;  // from the request to end until SIGKILL
  // from the caller's last command or beat until it counts as gone
  base::Nanoseconds silence = 30 * base::kSecond;
  // from a rank's failure until the others are ended
  base::Nanoseconds linger = 10 * base::kSecond;

  // With --hosts: in place of ranks one agent for each host, with its command.
  std::vector<HostShare> hosts;
  std::vector<std::vector<std::string>> agents;

  // How many processes are to be started: ranks, or agents.
  std::size_t members() const { return hosts.empty() ? bindings.size() : hosts.size(); }

  // "rank 3", "ranks 2 and 3", "the run on node1"; `members` count from 0.
  std::string show(const std::vector<int>& members) const;
};

}  // namespace plait::launch
