#include "chaos/round.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <random>
#include <utility>

#include "base/check.h"
#include "base/fd.h"
#include "base/text.h"
#include "chaos/judge.h"
#include "chaos/leftovers.h"
#include "chaos/program.h"
#include "comm/meet/meeting_place.h"

namespace plait::chaos {
namespace {

using base::Fd;
using base::Nanoseconds;
using base::now;
using base::sentence;

// How much longer than the contract the parent waits before a survivor counts as hung.
constexpr Nanoseconds kWatchdog = 8 * base::kSecond;

struct Pipe {
  Fd out, in;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) base::fail_errno("cannot make a pipe");
  return {.out = Fd(ends[0]), .in = Fd(ends[1])};
}

// One page of states, which the ranks share with their parent.
class SharedStates {
 public:
  explicit SharedStates(int world) : bytes_(sizeof(RankState) * world) {
    void* memory =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) base::fail_errno("cannot map a page");
    states_ = static_cast<RankState*>(memory);
  }
  SharedStates(const SharedStates&) = delete;
  SharedStates& operator=(const SharedStates&) = delete;
  ~SharedStates() { ::munmap(states_, bytes_); }

  RankState& operator[](int rank) { return states_[rank]; }

 private:
  std::size_t bytes_;
  RankState* states_;
};

class Round {
 public:
  explicit Round(const Scene& scene) : scene_(scene), states_(scene.world) {}
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;
  ~Round() {
    for (const pid_t pid : pids_) {
      if (pid > 0) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
    }
    for (int rank = 0; rank < scene_.world; ++rank) {
      states_[rank].over = true;
      if (const pid_t worker = states_[rank].worker; worker > 0) ::kill(worker, SIGKILL);
    }
  }

  Outcome run() {
    start();
    strike();
    listen();
    bury();
    judge();
    pipe_.out.reset();
    return std::move(outcome_);
  }

  // The number of forked workers that are alive; checks what they still hold of the ranks' shared
  // memory.
  int workers() {
    int count = 0;
    for (int rank = 0; rank < scene_.world; ++rank) count += states_[rank].worker > 0 ? 1 : 0;
    return count;
  }
  std::vector<std::string> held_by_workers() {
    std::vector<std::string> held;
    for (int rank = 0; rank < scene_.world; ++rank) {
      const pid_t worker = states_[rank].worker;
      if (worker == 0) continue;
      for (const std::string& thing : shared_things_of(worker))
        held.push_back(sentence("of rank ", rank, "'s worker: ", thing));
    }
    return held;
  }

 private:
  void start() {
    for (int rank = 0; rank < scene_.world; ++rank) {
      const pid_t pid = ::fork();
      if (pid < 0) base::fail_errno("cannot fork");
      if (pid == 0) be_rank(scene_, rank, states_[rank], pipe_.in.get());
      pids_.push_back(pid);
    }
    pipe_.in.reset();
  }

  bool victim_is_there() {
    const RankState& state = states_[scene_.victim];
    const Stage stage = state.stage;
    if (scene_.stage <= Stage::connecting) return stage >= scene_.stage;
    return state.calls >= scene_.calls && (stage == scene_.stage || scene_.stage == Stage::working);
  }

  // Waits for the moment, then ends the victim. If the victim ends by itself, only waits for that.
  void strike() {
    const Nanoseconds give_up = now() + kWatchdog;
    const bool by_itself = !is_kill(scene_.loss);
    const RankState& state = states_[scene_.victim];
    while (by_itself ? state.gone == 0 : !victim_is_there()) {
      if (now() > give_up || !pending_reports().empty()) break;
      ::sched_yield();
    }
    if (!by_itself) {
      const Nanoseconds until = now() + scene_.delay;
      while (now() < until) ::sched_yield();
    }
    ending_.gone = by_itself && state.gone > 0 ? state.gone.load() : now();
    if (scene_.loss == Loss::kill) ::kill(pids_[scene_.victim], SIGKILL);
    if (scene_.loss == Loss::stop) ::kill(pids_[scene_.victim], SIGSTOP);
    ::usleep(200);  // until it has stopped
    ending_.connected = state.connected;
    ending_.multiplied = state.stage == Stage::multiplying;
  }

  // Reads the reports that have arrived since the last call.
  const std::vector<Report>& pending_reports() {
    Report report;
    while (::read(pipe_.out.get(), &report, sizeof(report)) == sizeof(report)) {
      reports_.push_back(report);
    }
    return reports_;
  }

  bool has_reported(int rank) const {
    return std::any_of(reports_.begin(), reports_.end(),
                       [&](const Report& report) { return report.rank == rank; });
  }

  bool everybody_spoke() {
    pending_reports();
    for (int rank = 0; rank < scene_.world; ++rank) {
      if (rank != scene_.victim && !has_reported(rank)) return false;
    }
    return true;
  }

  void listen() {
    const Nanoseconds end = ending_.gone + patience(scene_, ending_) + kWatchdog;
    while (!everybody_spoke() && now() < end) {
      pollfd watched = {.fd = pipe_.out.get(), .events = POLLIN, .revents = 0};
      // Stops also when the last writer has ended without a report.
      if (::poll(&watched, 1, 20) == 1 && watched.revents == POLLHUP) break;
    }
    if (scene_.loss == Loss::stop) ::kill(pids_[scene_.victim], SIGKILL);
  }

  // Reaps the processes, which must all end by themselves, at once; the others are hung.
  void bury() {
    const Nanoseconds end = now() + kWatchdog;
    for (int rank = 0; rank < scene_.world; ++rank) {
      int status = 0;
      while (::waitpid(pids_[rank], &status, WNOHANG) == 0) {
        const bool silent = rank != scene_.victim && !has_reported(rank);
        if (silent || now() > end) {
          ++outcome_.hangs;
          outcome_.wrong.push_back(sentence("rank ", rank, " hangs while it is ",
                                            kStages[static_cast<int>(states_[rank].stage.load())],
                                            ", in call ", states_[rank].calls.load()));
          ::kill(pids_[rank], SIGKILL);
          ::waitpid(pids_[rank], &status, 0);
          break;
        }
        ::usleep(500);
      }
      pids_[rank] = 0;
      pending_reports();
      if (rank != scene_.victim && !has_reported(rank)) {
        outcome_.wrong.push_back(sentence("rank ", rank, " ended without a word, status ", status));
      }
    }
  }

  void judge() {
    std::sort(reports_.begin(), reports_.end(),
              [](const Report& a, const Report& b) { return a.at < b.at; });
    outcome_.joined = ending_.connected;
    outcome_.multiplied = ending_.multiplied;
    std::erase_if(reports_, [&](const Report& report) { return report.rank == scene_.victim; });
    for (const Report& report : reports_) {
      const std::string fault = complaint(scene_, ending_, report, reports_);
      if (!fault.empty()) outcome_.wrong.push_back(fault);
      outcome_.noticed.push_back(report.at - ending_.gone);
    }
  }

  const Scene& scene_;
  SharedStates states_;
  Pipe pipe_ = make_pipe();
  std::vector<pid_t> pids_;
  std::vector<Report> reports_;
  Ending ending_ = {};
  Outcome outcome_;
};

}  // namespace

Scene make_scene(std::uint64_t seed, std::optional<int> world, Nanoseconds timeout) {
  std::mt19937_64 random(seed);
  const auto below = [&](int end) { return static_cast<int>(random() % end); };
  Scene scene = {};
  scene.seed = seed;
  scene.timeout = timeout;
  scene.world = world.value_or(2 + below(4));
  scene.victim = below(scene.world);
  const int loss = below(20);
  scene.loss = loss < 15   ? Loss::kill
               : loss < 16 ? Loss::leave
               : loss < 17 ? Loss::raise
                           : Loss::stop;
  constexpr std::array<Stage, 8> kOfCollectives = {
      Stage::starting, Stage::connecting,     Stage::connecting, Stage::working,
      Stage::working,  Stage::making_mailbox, Stage::splitting,  Stage::splitting};
  constexpr std::array<Stage, 4> kOfOperators = {Stage::preparing, Stage::multiplying,
                                                 Stage::multiplying, Stage::multiplying};
  scene.work = below(5) < 2 ? Work::operators : Work::collectives;
  scene.stage = scene.work == Work::operators ? kOfOperators[below(kOfOperators.size())]
                                              : kOfCollectives[below(kOfCollectives.size())];
  scene.calls = 1 + below(40);
  // Most of the set-up takes a millisecond or two.
  scene.delay = below(2) == 0 ? below(300) * base::kMicrosecond : below(3000) * base::kMicrosecond;
  scene.job = sentence("chaos-", ::getpid(), '-', seed);
  scene.has_workers = below(3) == 0;
  scene.has_folder = below(2) == 0;
  return scene;
}

std::string describe(const Scene& scene) {
  const bool by_itself = !is_kill(scene.loss);
  return sentence(
      "rank ", scene.victim, " of ", scene.world, ' ', kLossTexts[static_cast<int>(scene.loss)],
      by_itself ? ""
                : sentence(" ", base::show_duration(scene.delay), " after ",
                           kStages[static_cast<int>(scene.stage)]),
      " (call ", scene.calls, " of ", scene.work == Work::operators ? "operators" : "collectives",
      scene.has_workers ? ", with workers" : "", scene.has_folder ? ", with a private folder" : "",
      ')');
}

Outcome run_round(const Scene& scene, bool isolated) {
  const Leftovers before(isolated);
  Round round(scene);
  Outcome outcome = round.run();
  outcome.workers = round.workers();
  // A rank 0 that was killed last leaves its file to the next job of this user.
  if (scene.has_folder && scene.loss == Loss::stop && scene.victim == 0) {
    ::usleep(150'000);
    const comm::shm::MeetingPlace next(comm::shm::name_of_job(scene.job + "-next"), now());
  }
  outcome.left_over = before.left_over();
  for (std::string& thing : round.held_by_workers()) outcome.left_over.push_back(std::move(thing));
  return outcome;
}

}  // namespace plait::chaos
