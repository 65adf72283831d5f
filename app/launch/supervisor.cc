#include "launch/supervisor.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
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

constexpr int kTimedOut = 124;        // the status of timeout(1)
constexpr int kMostExitStatus = 128;  // above it: of a rank that a signal has killed

// Background processes of ranks, such as Python's resource tracker, usually end by themselves.
constexpr base::Nanoseconds kSettle = base::kSecond / 2;

// A terminal, a shell and timeout(1) may each send a signal for one request of the user. Only a
// signal that comes later than this is a second request.
constexpr base::Nanoseconds kSameRequest = base::kSecond / 4;

// SIGKILL is repeated for processes that were being forked meanwhile. Processes that are stuck in
// the system do not end even then.
constexpr base::Nanoseconds kKillAgain = 20 * base::kMillisecond;
constexpr base::Nanoseconds kKillForLong = 10 * base::kSecond;

// The time for runs on other hosts to hear of a request, and to send the ranks' last output.
constexpr base::Nanoseconds kForRemoteRuns = base::kSecond;

// A beat that comes late, or is lost with a connection that recovers, must not end a run.
constexpr int kBeatsInSilence = 6;

// The time for a reader to take the last output.
constexpr base::Nanoseconds kLastWords = 2 * base::kSecond;

int poll_timeout(std::optional<base::Nanoseconds> deadline) {
  if (!deadline) return -1;
  const std::int64_t left = (*deadline - base::now()) / base::kMillisecond + 1;
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
}

bool has_passed(std::optional<base::Nanoseconds> moment) {
  return moment && base::now() >= *moment;
}

}  // namespace

Supervisor::Supervisor(const Launch& launch)
    : launch_(launch),
      inherited_(take_over()),
      signals_(open_signals()),
      ranks_(launch, inherited_),
      output_(launch.prefix),
      caller_(launch.has_caller ? STDIN_FILENO : -1, launch.silence) {}

void Supervisor::start() {
  for (std::size_t member = 0; member < launch_.members(); ++member) {
    const std::string what = ranks_.start_next(launch_.prefix ? &output_ : nullptr);
    if (launch_.verbose) say(what);
  }
}

int Supervisor::watch() {
  if (launch_.limit > 0) deadline_ = base::now() + launch_.limit;
  if (!launch_.hosts.empty()) beat();
  while (phase_ != Phase::over || output_.pending()) sleep_until_something_happens();
  return interrupted_by_ != 0 ? 128 + interrupted_by_ : status_;
}

void Supervisor::sleep_until_something_happens() {
  std::vector<pollfd> polls = {{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                               {.fd = caller_.fd(), .events = POLLIN, .revents = 0}};
  const std::size_t own = polls.size();
  output_.add_to(polls);
  if (poll(polls.data(), polls.size(), poll_timeout(next_moment())) < 0 && errno != EINTR)
    base::fail_errno("cannot wait for the ranks");
  output_.serve(polls.data() + own);
  if (const std::string failure = output_.take_failure(); !failure.empty()) say(failure);
  if (polls[0].revents != 0) read_signals();
  if (polls[1].revents != 0) read_caller();
  if (caller_.is_silent())
    lose_caller("has been silent for " + base::show_duration(launch_.silence));
  if (has_passed(beat_at_)) beat();
  if (has_passed(deadline_)) deadline_passed();
}

std::optional<base::Nanoseconds> Supervisor::next_moment() const {
  std::optional<base::Nanoseconds> next = deadline_;
  for (const auto& one : {caller_.ask_at(), beat_at_}) {
    if (one && (!next || *one < *next)) next = one;
  }
  return next;
}

void Supervisor::beat() {
  ranks_.beat();
  beat_at_ = base::now() + launch_.silence / kBeatsInSilence;
}

void Supervisor::read_signals() {
  signalfd_siginfo signal = {};
  while (read(signals_.get(), &signal, sizeof signal) == sizeof signal) handle(signal);
}

void Supervisor::read_caller() {
  for (const int command : caller_.read()) obey(command);
  if (caller_.fd() < 0) lose_caller("has ended");
}

// Says nothing of requests: the caller has said it.
void Supervisor::obey(int command) {
  if (command == SIGKILL) {
    if (phase_ == Phase::over) output_.drop();
    if (phase_ < Phase::killing) kill_rest();
  } else if (!ends_the_run(command)) {
    ranks_.pass_on(command, false);
  } else if (phase_ < Phase::ending) {
    interrupted_by_ = command;
    interrupted_at_ = base::now();
    ask_to_end(command);
  }
}

// The ranks here are of no use without the others, which end with the caller.
void Supervisor::lose_caller(const std::string& how) {
  caller_.close();
  if (phase_ >= Phase::ending) return;
  const std::string rest = show_rest();
  obey(SIGTERM);
  say(fmt::format("the plait run that called this one {}; waiting up to {} for {} to end", how,
                  base::show_duration(launch_.grace), rest));
}

void Supervisor::handle(const signalfd_siginfo& signal) {
  const int number = static_cast<int>(signal.ssi_signo);
  const bool from_terminal = signal.ssi_code == SI_KERNEL;
  if (number == SIGCHLD) return reap();
  if (number == SIGTSTP) return pause(from_terminal);
  if (ends_the_run(number)) return interrupt(number, from_terminal);
  ranks_.pass_on(number, from_terminal);
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
  if (launch_.is_for_verb && WIFEXITED(wait_status)) return rank_of_verb_exited(rank, status);
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

void Supervisor::rank_of_verb_exited(int rank, int status) {
  const bool is_first = phase_ == Phase::running;
  const bool corrects = phase_ == Phase::lingering && rank == 0 && status_ <= kMostExitStatus;
  if (!is_first && !corrects) return;
  failed_rank_ = rank;
  status_ = status;
  if (is_first) enter(Phase::lingering, launch_.linger);
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
      return say("ending " + rest);
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
  ranks_.pass_on(signal, from_terminal);
  ranks_.pass_on(SIGCONT, false);  // a stopped process does not receive the signal
  // The runs on other hosts have their own patience with the ranks.
  enter(Phase::ending, launch_.grace + (launch_.hosts.empty() ? 0 : kForRemoteRuns));
}

void Supervisor::kill_rest() {
  const bool first = phase_ != Phase::killing;
  const std::string rest = show_rest();
  if (first) killing_since_ = base::now();
  if (first && !launch_.hosts.empty()) {
    ranks_.pass_on(SIGKILL, false);
    enter(Phase::killing, kForRemoteRuns);
  } else {
    ranks_.kill_all();
    enter(Phase::killing, kKillAgain);
  }
  if (first)
    say(fmt::format("killing {}, which did not end after {}", rest, show_signal(asked_with_)));
  if (base::now() - killing_since_ < kKillForLong) return;
  say(fmt::format("SIGKILL did not end {} within {}", rest, base::show_duration(kKillForLong)));
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
  if (!ranks.empty()) return launch_.show(ranks);
  return base::show_count(ranks_.processes().size(), "process") + " that the ranks left behind";
}

void Supervisor::say(const std::string& sentence) {
  output_.say(sentence.empty() ? "" : launch_.speaker + ": " + sentence);
}

}  // namespace plait::launch
