// Starts the ranks and supervises them until all their processes have ended.
//
// One loop sleeps in poll() for signals, for output of the ranks, and until the next deadline. The
// phase tells what it waits for; phases only advance.
#pragma once

#include <sys/signalfd.h>

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "launch/launch.h"
#include "launch/output.h"
#include "launch/rank_group.h"
#include "launch/remote_commands.h"
#include "launch/signals.h"

namespace plait::launch {

class Supervisor {
 public:
  explicit Supervisor(const Launch& launch);

  // Throws if a rank can't be started. Ranks that were started before are killed with the
  // supervisor.
  void start();

  // Returns the exit status of the run: that of the first failed rank, 128 + the signal that ended
  // the run, or 124 at the time limit.
  int watch();

 private:
  enum class Phase {
    running,    // until a rank fails, a signal arrives, or the time limit is reached
    lingering,  // a rank has failed; the others may notice it and end by themselves
    settling,   // all ranks have ended; their background processes may end too
    ending,     // the rest has been asked to end
    killing,    // the rest is being killed
    over,       // no process is left; output may still be pending
  };

  void sleep_until_something_happens();
  void read_signals();
  void read_caller();
  void obey(int command);
  void lose_caller(const std::string& how);
  void handle(const signalfd_siginfo& signal);
  void interrupt(int signal, bool from_terminal);
  void pause(bool from_terminal);
  void reap();
  void rank_ended(int rank, int wait_status);
  void rank_of_verb_exited(int rank, int status);
  void deadline_passed();
  void beat();

  void enter(Phase phase, base::Nanoseconds duration);
  void ask_to_end(int signal, bool from_terminal = false);
  void kill_rest();
  void finish();
  std::optional<base::Nanoseconds> next_moment() const;
  std::string show_rest() const;
  void say(const std::string& sentence);

  const Launch& launch_;
  Inherited inherited_;
  base::Fd signals_;
  RankGroup ranks_;
  Output output_;
  CallerInput caller_;

  Phase phase_ = Phase::running;
  std::optional<base::Nanoseconds> deadline_;  // of this phase
  base::Nanoseconds killing_since_ = 0;
  std::optional<base::Nanoseconds> beat_at_;  // with --hosts
  int interrupted_by_ = 0;                    // the signal; 0: none
  base::Nanoseconds interrupted_at_ = 0;
  int failed_rank_ = -1;
  int asked_with_ = 0;  // the signal that asked the rest to end
  int status_ = 0;
};

}  // namespace plait::launch
