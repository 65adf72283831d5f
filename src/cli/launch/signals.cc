#include "cli/launch/signals.h"

#include <sys/prctl.h>
#include <sys/signalfd.h>

#include <csignal>

#include "base/check.h"

namespace plait::cli {
namespace {

// Who started us may have told us to ignore some of these (nohup, a shell's `&`): then they stay
// ignored, here and in the ranks.
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

TakeOver::TakeOver() {
  sigaction(SIGPIPE, nullptr, &sigpipe_);
  sigaction(SIGCHLD, nullptr, &sigchld_);
  inherited_.ignored_sigpipe = sigpipe_.sa_handler == SIG_IGN;
  signal(SIGPIPE, SIG_IGN);  // write() says so when a reader has gone
  signal(SIGCHLD, SIG_DFL);  // ignored, it would leave us no statuses to read
  const sigset_t wanted = wanted_signals();
  sigprocmask(SIG_BLOCK, &wanted, &inherited_.blocked);
  // Two pipes for each of 1024 ranks are more than most systems allow at first.
  getrlimit(RLIMIT_NOFILE, &inherited_.files);
  rlimit files = inherited_.files;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  prctl(PR_GET_CHILD_SUBREAPER, &reaped_);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

// What came when nobody read any more was meant for the run, and ends with it.
TakeOver::~TakeOver() {
  const sigset_t wanted = wanted_signals();
  const timespec at_once = {};
  while (sigtimedwait(&wanted, nullptr, &at_once) > 0) continue;
  prctl(PR_SET_CHILD_SUBREAPER, reaped_);
  setrlimit(RLIMIT_NOFILE, &inherited_.files);
  sigaction(SIGPIPE, &sigpipe_, nullptr);
  sigaction(SIGCHLD, &sigchld_, nullptr);
  sigprocmask(SIG_SETMASK, &inherited_.blocked, nullptr);
}

base::Fd open_signals() {
  const sigset_t wanted = wanted_signals();
  base::Fd signals(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) base::fail_errno("cannot listen for signals");
  return signals;
}

bool ends_the_run(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

}  // namespace plait::cli
