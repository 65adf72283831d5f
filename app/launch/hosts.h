// plait run --hosts: the same command on several hosts.
//
// On each host a plait run of its own starts and supervises the ranks there. This process
// supervises those runs, each through an agent such as ssh. What a remote run needs to know about
// the whole is one variable, PLAIT_PART, and the job's secret. The secret comes as the first line
// of its standard input, because every user of a host can read command lines. Commands follow it:
// see remote_commands.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plait::launch {

struct HostShare {
  std::string host;  // as the agent gets it, perhaps with a user
  int ranks;
};

// The host as other hosts may call it.
std::string name_of(const HostShare& share);

// "node1:2,me@node2:2,[fe80::1]:2"; one rank on a host without a number.
std::vector<HostShare> parse_hosts(std::string_view text, int most_ranks);

// The ranks that one plait run starts, of a world that others start too.
struct RunPart {
  int first = 0;
  int world = 0;
  std::string job;
  std::string rendezvous;   // HOST:PORT; empty: all ranks are on this host
  std::string hosts = {};   // of all ranks, in their order, as node1:2,node2:2
  std::string secret = {};  // that the ranks know; not written with the rest
};
std::string write(const RunPart& part);
std::optional<RunPart> part_from_environment();

// The secret of a job on several hosts: PLAIT_SECRET, or a random one.
std::string choose_secret();

// The line with the secret that the caller of a remote run writes. What comes after it is left.
std::string read_secret(int input);

// The command of the agent: its own words, the host, and one word for the host's shell, which runs
// `command` here with plait's variables. `options`: those of plait run.
std::vector<std::string> agent_words(const HostShare& share, const RunPart& part,
                                     const std::vector<std::string>& options,
                                     const std::vector<std::string>& command);

// A word for a shell.
std::string quoted(const std::string& word);

}  // namespace plait::launch
