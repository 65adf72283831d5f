#include "launch/signals.h"

#include <sys/prctl.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "base/check.h"

namespace plait::launch {
namespace {

constexpr std::array kRequestsToEnd = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// Signals that were ignored when we were started (by nohup, or a shell's `&`) stay ignored, here
// and in the ranks.
sigset_t wanted_signals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP}) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&wanted, signal);
  }
  return wanted;
}

}  // namespace

Inherited take_over() {
  Inherited inherited = {};
  struct sigaction action = {};
  sigaction(SIGPIPE, nullptr, &action);
  inherited.ignored_sigpipe = action.sa_handler == SIG_IGN;
  signal(SIGPIPE, SIG_IGN);  // write() reports a reader that is gone
  signal(SIGCHLD, SIG_DFL);  // if it were ignored, there would be no exit statuses to read
  const sigset_t wanted = wanted_signals();
  sigprocmask(SIG_BLOCK, &wanted, &inherited.blocked);
  // Two pipes for each of 1024 ranks exceed the soft limit of most systems.
  getrlimit(RLIMIT_NOFILE, &inherited.files);
  rlimit files = inherited.files;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  return inherited;
}

RestoredSignals::RestoredSignals() {
  sigprocmask(SIG_SETMASK, nullptr, &blocked_);
  sigaction(SIGPIPE, nullptr, &sigpipe_);
  sigaction(SIGCHLD, nullptr, &sigchld_);
  getrlimit(RLIMIT_NOFILE, &files_);
  prctl(PR_GET_CHILD_SUBREAPER, &reaps_orphans_);
}

RestoredSignals::~RestoredSignals() {
  sigset_t discarded = wanted_signals();
  for (const int signal : kRequestsToEnd) {
    if (!discards_requests_) sigdelset(&discarded, signal);
  }
  const timespec at_once = {};
  while (sigtimedwait(&discarded, nullptr, &at_once) > 0) continue;
  prctl(PR_SET_CHILD_SUBREAPER, reaps_orphans_);
  setrlimit(RLIMIT_NOFILE, &files_);
  sigaction(SIGPIPE, &sigpipe_, nullptr);
  sigaction(SIGCHLD, &sigchld_, nullptr);
  sigprocmask(SIG_SETMASK, &blocked_, nullptr);
}

base::Fd open_signals() {
  const sigset_t wanted = wanted_signals();
  base::Fd signals(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) base::fail_errno("cannot listen for signals");
  return signals;
}

bool ends_the_run(int signal) {
  return std::ranges::find(kRequestsToEnd, signal) != kRequestsToEnd.end();
}

}  // namespace plait::launch
