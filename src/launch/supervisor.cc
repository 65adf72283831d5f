#include "launch/supervisor.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "launch/format.h"

namespace plait::launch {
namespace {

constexpr int kTimedOut = 124;  // the status of timeout(1)

// Background processes of ranks, such as Python's resource tracker, usually end by themselves.
constexpr base::Nanoseconds kSettle = base::kSecond / 2;

// A terminal, a shell and timeout(1) may each send a signal for one request of the user. Only a
// signal that comes later than this is a second request.
constexpr base::Nanoseconds kSameRequest = base::kSecond / 4;

// SIGKILL is repeated for processes that were being forked meanwhile. Processes that are stuck in
// the system do not end even then.
constexpr base::Nanoseconds kKillAgain = 20 * base::kMillisecond;
constexpr base::Nanoseconds kKillForLong = 10 * base::kSecond;

// The time for a reader to take the last output.
constexpr base::Nanoseconds kLastWords = 2 * base::kSecond;

int poll_timeout(std::optional<base::Nanoseconds> deadline) {
  if (!deadline) return -1;
  const std::int64_t left = (*deadline - base::now()) / base::kMillisecond + 1;
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
}

}  // namespace

Supervisor::Supervisor(const Launch& launch)
    : launch_(launch),
      inherited_(take_over()),
      signals_(open_signals()),
      ranks_(launch, inherited_),
      output_(launch.prefix) {}

void Supervisor::start() {
  for (std::size_t member = 0; member < launch_.members(); ++member) {
    const std::string what = ranks_.start_next(launch_.prefix ? &output_ : nullptr);
    if (launch_.verbose) say(what);
  }
}

int Supervisor::watch() {
  if (launch_.limit > 0) deadline_ = base::now() + launch_.limit;
  while (phase_ != Phase::over || output_.pending()) sleep_until_something_happens();
  return interrupted_by_ != 0 ? 128 + interrupted_by_ : status_;
}

void Supervisor::sleep_until_something_happens() {
  std::vector<pollfd> polls = {{.fd = signals_.get(), .events = POLLIN, .revents = 0}};
  // Nothing is sent over it: it can only be closed.
  const bool has_input = launch_.ends_with_input && !input_ended_;
  if (has_input) polls.push_back({.fd = STDIN_FILENO, .events = POLLIN, .revents = 0});
  const std::size_t own = polls.size();
  output_.add_to(polls);
  if (poll(polls.data(), polls.size(), poll_timeout(deadline_)) < 0 && errno != EINTR)
    base::fail_errno("cannot wait for the ranks");
  output_.serve(polls.data() + own);
  if (polls[0].revents != 0) read_signals();
  if (has_input && polls[1].revents != 0) read_input();
  if (deadline_ && base::now() >= *deadline_) deadline_passed();
}

void Supervisor::read_signals() {
  signalfd_siginfo signal = {};
  while (read(signals_.get(), &signal, sizeof signal) == sizeof signal) handle(signal);
}

// The caller of a remote run ends it, or is gone: the ranks here can't be of use to it any more.
void Supervisor::read_input() {
  std::array<char, 256> bytes;
  const ssize_t got = read(STDIN_FILENO, bytes.data(), bytes.size());
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return;
  input_ended_ = true;
  if (phase_ >= Phase::ending) return;
  interrupted_by_ = SIGTERM;
  interrupted_at_ = base::now();
  const std::string rest = show_rest();
  ask_to_end(SIGTERM);
  say(fmt::format(
      "the plait run that called this one from another host ends the job, or is gone: waiting up "
      "to {} for {} to end",
      base::show_duration(launch_.grace), rest));
}

void Supervisor::handle(const signalfd_siginfo& signal) {
  const int number = static_cast<int>(signal.ssi_signo);
  const bool from_terminal = signal.ssi_code == SI_KERNEL;
  if (number == SIGCHLD) return reap();
  if (number == SIGTSTP) return pause(from_terminal);
  if (ends_the_run(number)) return interrupt(number, from_terminal);
  if (launch_.hosts.empty()) ranks_.pass_on(number, from_terminal);
}

void Supervisor::interrupt(int signal, bool from_terminal) {
  if (interrupted_by_ == 0) {
    interrupted_by_ = signal;
    interrupted_at_ = base::now();
    if (phase_ == Phase::over) return output_.drop();
    if (phase_ == Phase::killing) return;
    const std::string rest = show_rest();
    ask_to_end(signal, from_terminal);
    // The terminal has just written "^C" at the start of the line.
    if (from_terminal && isatty(STDERR_FILENO) == 1) say("");
    return say(fmt::format("{}: waiting up to {} for {} to end; another {} kills",
                           show_signal(signal), base::show_duration(launch_.grace), rest,
                           signal == SIGINT ? "Ctrl-C" : show_signal(signal)));
  }
  if (base::now() - interrupted_at_ < kSameRequest) return;
  if (phase_ == Phase::over) return output_.drop();
  if (phase_ != Phase::killing) kill_rest();
}

// Ctrl-Z: ranks have groups of their own, which the terminal does not stop.
void Supervisor::pause(bool from_terminal) {
  ranks_.pass_on(SIGTSTP, from_terminal);
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &stop, nullptr);
  raise(SIGTSTP);  // stops here until SIGCONT
  sigprocmask(SIG_BLOCK, &stop, nullptr);
  ranks_.pass_on(SIGCONT, false);
}

void Supervisor::reap() {
  int wait_status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &wait_status, WNOHANG)) > 0;) {
    if (const auto rank = ranks_.bury(pid)) rank_ended(*rank, wait_status);
  }
  if (phase_ == Phase::over || !ranks_.living().empty()) return;
  if (ranks_.processes().empty()) return finish();
  if (phase_ < Phase::settling) enter(Phase::settling, std::min(kSettle, launch_.grace));
}

void Supervisor::rank_ended(int rank, int wait_status) {
  if (wait_status == 0) return;
  const int status = exit_status_of(wait_status);
  // A rank that has lost a peer was not the first to fail, even if it is the first to be reaped.
  const bool cause = phase_ == Phase::lingering && status_ == kPeerLost && status != kPeerLost;
  if (phase_ != Phase::running && !cause) return;
  failed_rank_ = rank;
  status_ = status;
  const std::string what = launch_.show({rank}) + ' ' + show_end(wait_status);
  if (cause) return say(what);
  const auto others = ranks_.living();
  if (others.empty()) return say(what);
  enter(Phase::lingering, launch_.linger);
  say(fmt::format("{}; waiting up to {} for {} to end too", what,
                  base::show_duration(launch_.linger), show_rest()));
}

// Acts before it prints, so `rest` is what there was before.
void Supervisor::deadline_passed() {
  const std::string rest = show_rest();
  switch (phase_) {
    case Phase::running:
      status_ = kTimedOut;
      ask_to_end(SIGTERM);
      return say(fmt::format("ending {} at the time limit of {}", rest,
                             base::show_duration(launch_.limit)));
    case Phase::lingering:
      ask_to_end(SIGTERM);
      return say(fmt::format("ending {}, {} after {} failed", rest,
                             base::show_duration(launch_.linger), launch_.show({failed_rank_})));
    case Phase::settling:
      ask_to_end(SIGTERM);
      return say(fmt::format("ending {} that the ranks left behind", rest));
    case Phase::ending:
    case Phase::killing:
      return kill_rest();
    case Phase::over:
      return output_.drop();
  }
}

void Supervisor::enter(Phase phase, base::Nanoseconds duration) {
  phase_ = phase;
  deadline_ = base::now() + duration;
}

void Supervisor::ask_to_end(int signal, bool from_terminal) {
  asked_with_ = signal;
  if (!launch_.hosts.empty()) {
    ranks_.end_remote_runs();  // a signal would end the agent, which brings the rest of the output
  } else {
    ranks_.pass_on(signal, from_terminal);
    ranks_.pass_on(SIGCONT, false);  // a stopped process does not receive the signal
  }
  enter(Phase::ending, launch_.grace);
}

void Supervisor::kill_rest() {
  const bool first = phase_ != Phase::killing;
  const std::string rest = show_rest();
  if (first) killing_since_ = base::now();
  ranks_.kill_all();
  enter(Phase::killing, kKillAgain);
  const std::string asked = launch_.hosts.empty() ? show_signal(asked_with_) : "the request to end";
  if (first) say(fmt::format("killing {}, still running after {}", rest, asked));
  if (base::now() - killing_since_ < kKillForLong) return;
  say(fmt::format("{} cannot be killed and keeps running", rest));
  finish();
}

void Supervisor::finish() {
  phase_ = Phase::over;
  deadline_.reset();
  output_.finish();
  // Lines of ranks are kept for a reader that does not read, as cat would do; the user may
  // interrupt. Our own messages are not kept that long, and neither are lines after the time limit.
  if (!launch_.prefix || (launch_.limit > 0 && status_ == kTimedOut))
    enter(Phase::over, kLastWords);
}

std::string Supervisor::show_rest() const {
  const auto ranks = ranks_.living();
  return ranks.empty() ? base::show_count(ranks_.processes().size(), "process")
                       : launch_.show(ranks);
}

void Supervisor::say(const std::string& sentence) {
  output_.say(sentence.empty() ? "" : "plait run: " + sentence);
}

}  // namespace plait::launch
