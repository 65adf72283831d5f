// The signals that plait run reads in its loop, and the state that ranks get back.
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include "base/fd.h"

namespace plait::launch {

// The state that we inherited.
struct Inherited {
  sigset_t blocked;
  bool ignored_sigpipe;
  rlimit files;
};

// Blocks the signals that the loop reads, and makes orphans of the ranks our children.
Inherited take_over();

// Undoes everything that take_over() changes when it ends, for code that continues after a run.
// A request to end that came too late for the run's loop then takes effect; other signals that were
// not read are discarded.
class RestoredSignals {
 public:
  RestoredSignals();
  ~RestoredSignals();
  RestoredSignals(const RestoredSignals&) = delete;
  RestoredSignals& operator=(const RestoredSignals&) = delete;

  // The run has ended as requested: discards the repetitions of the request too.
  void discard_requests() { discards_requests_ = true; }

 private:
  bool discards_requests_ = false;
  sigset_t blocked_ = {};
  struct sigaction sigpipe_ = {};
  struct sigaction sigchld_ = {};
  rlimit files_ = {};
  int reaps_orphans_ = 0;
};

// A descriptor from which these signals are read.
base::Fd open_signals();

// SIGINT, SIGTERM and similar signals, which end a run.
bool ends_the_run(int signal);

}  // namespace plait::launch
