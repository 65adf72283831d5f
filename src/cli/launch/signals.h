// The signals that plait run reads in its loop, and what ranks get back of what it changed.
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include "base/fd.h"

namespace plait::cli {

// As whoever started us left it.
struct Inherited {
  sigset_t blocked;
  bool ignored_sigpipe;
  rlimit files;
};

// Blocks the signals that the loop reads, and makes orphans of the ranks our children.
Inherited take_over();

// For who goes on after a run: when it ends, all that take_over() changes is as it was. What came
// in between and nobody has read was meant for the run, and ends with it.
class GivenBack {
 public:
  GivenBack();
  ~GivenBack();
  GivenBack(const GivenBack&) = delete;
  GivenBack& operator=(const GivenBack&) = delete;

 private:
  sigset_t blocked_ = {};
  struct sigaction sigpipe_ = {};
  struct sigaction sigchld_ = {};
  rlimit files_ = {};
  int reaps_orphans_ = 0;
};

// A descriptor to read those signals from.
base::Fd open_signals();

// SIGINT, SIGTERM and the like, after which a run is over.
bool ends_the_run(int signal);

}  // namespace plait::cli
