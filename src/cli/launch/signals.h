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

// Blocks the signals that the loop reads, and makes orphans of the ranks our children, until it is
// given back: what comes behind a run, as another one, finds everything as it was.
class TakeOver {
 public:
  TakeOver();
  ~TakeOver();
  TakeOver(const TakeOver&) = delete;
  TakeOver& operator=(const TakeOver&) = delete;

  const Inherited& inherited() const { return inherited_; }

 private:
  Inherited inherited_ = {};
  struct sigaction sigpipe_ = {};
  struct sigaction sigchld_ = {};
  int reaped_ = 0;  // whether orphans were our children before
};

// A descriptor to read those signals from.
base::Fd open_signals();

// SIGINT, SIGTERM and the like, after which a run is over.
bool ends_the_run(int signal);

}  // namespace plait::cli
