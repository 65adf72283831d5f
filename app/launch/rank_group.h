// The ranks and all processes that they start: starting, signalling and ending them.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launch/guard.h"
#include "launch/launch.h"
#include "launch/output.h"
#include "launch/processes.h"
#include "launch/remote_commands.h"
#include "launch/signals.h"

namespace plait::launch {

class RankGroup {
 public:
  RankGroup(const Launch& launch, const Inherited& inherited);
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;
  ~RankGroup();  // kills what is left

  // Starts the next rank, or the agent of the next host. Its output goes to `output` if that is
  // given. Returns a description for --verbose.
  std::string start_next(Output* output);

  // Tells that this process was reaped. Returns its rank, if it was one.
  std::optional<int> bury(pid_t pid);

  std::vector<int> living() const;
  // All living processes of the run, ranks or not.
  std::vector<Process> processes() const;

  // Sends a signal to all processes, on other hosts through the runs there. A signal from the
  // terminal has already reached our own process group.
  void pass_on(int signal, bool from_terminal) const;
  void kill_all() const;

  // Tells the runs on other hosts that this one is there.
  void beat() const { inputs_.tell(kBeat); }

 private:
  struct Rank {
    pid_t pid;
    bool own_group;
    bool alive;
  };

  std::string start_agent();
  bool is_signalled_singly(pid_t group, pid_t parent) const;

  const Launch& launch_;
  const Inherited& inherited_;
  std::string job_;
  Guard guard_;
  std::vector<Rank> ranks_;
  RemoteInputs inputs_;  // of agents, open as long as this process lives
};

}  // namespace plait::launch
