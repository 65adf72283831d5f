// Ranks that mpirun starts, in what goes wrong between them: the word says in what. What each of
// them sees it says on standard output, with the milliseconds that it took.
//
//   mpirun -n 3 mpi_program killed_in_operator
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "comm/session/state.h"
#include "ops/problem.h"
#include "plait/collectives.h"
#include "plait/ops.h"

namespace plait {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

bool g_is_stuck_in_finalize = false;

void say(int rank, const std::string& what, Clock::time_point since) {
  const auto taken = std::chrono::duration_cast<milliseconds>(Clock::now() - since).count();
  std::printf("rank %d %s %lld\n", rank, what.c_str(), static_cast<long long>(taken));
  std::fflush(stdout);
}

[[noreturn]] void die() {
  std::raise(SIGKILL);
  ::_exit(1);
}

Communicator connect(milliseconds timeout) {
  return Communicator::connect({.transport = "mpi", .timeout = timeout});
}

// The error's words, after which ranks go their ways at once: the others need not be met again.
void expect_error(int rank, const std::function<void()>& calls) {
  auto start = Clock::now();
  try {
    calls();
    start = Clock::now();  // ranks may be late for the first call
    for (;;) calls();
  } catch (const Error& error) {
    say(rank, std::string(name(error.code())) + ": " + error.what(), start);
  }
}

void killed_in_barrier() {
  Communicator comm = connect(std::chrono::minutes(1));
  if (comm.rank() == 1) {
    barrier(comm);  // the others may still be in it
    die();
  }
  expect_error(comm.rank(), [&] { barrier(comm); });
}

void killed_in_operator() {
  Communicator comm = connect(std::chrono::minutes(1));
  const OpProblem problem(Operator::matmul_all_reduce, 300, comm, 700);
  Op op = prepare(problem.desc(), comm, {.plan = parse_plan("fused")});
  if (comm.rank() == 1) {
    op.run(problem.call());
    std::thread([] {
      std::this_thread::sleep_for(milliseconds(50));
      die();
    }).detach();
    for (;;) op.run(problem.call());
  }
  expect_error(comm.rank(), [&] { op.run(problem.call()); });
}

// The others have not noticed it when they send.
void post_to_a_dead_rank() {
  Communicator comm = connect(std::chrono::minutes(1));
  constexpr std::size_t kBytes = 1'000'000;
  const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = kBytes});
  const auto line = comm.make_mailbox({.slots = 1, .slot_bytes = 8});
  float pid = comm.rank() == 1 ? static_cast<float>(::getpid()) : 0.0F;
  all_reduce({&pid, 1}, comm);
  barrier(comm);
  if (comm.rank() == 1) {
    // No rank is in the barrier any more.
    for (const int other : {0, 2}) {
      line->wait_arrived(other, 0, {});
      line->release(other, 0);
    }
    die();
  }
  line->post(1, 0, {}, 0);
  while (::kill(static_cast<pid_t>(pid), 0) == 0) std::this_thread::sleep_for(milliseconds(1));
  expect_error(comm.rank(), [&] {
    mailbox->outbox(1, 0);
    mailbox->post(1, 0, {}, kBytes);
  });
}

// Rank 0 destroys a communicator and mailboxes in which chunks are under way to rank 1.
void leave(const std::function<void()>& meanwhile) {
  std::optional<Communicator> comm = connect(std::chrono::minutes(1));
  constexpr std::size_t kBytes = 1'000'000;
  std::vector<std::unique_ptr<Mailbox>> mailboxes(4);
  for (auto& mailbox : mailboxes) mailbox = comm->make_mailbox({.slots = 1, .slot_bytes = kBytes});
  barrier(*comm);
  comm->state().set_timeout(base::kSecond);
  if (comm->rank() == 1) {
    std::this_thread::sleep_for(milliseconds(1000));  // in no call of MPI while rank 0 sends
    meanwhile();
  }
  if (comm->rank() != 0) return;
  std::this_thread::sleep_for(milliseconds(200));  // until rank 1 has called MPI for the last time
  for (const auto& mailbox : mailboxes) {
    mailbox->outbox(1, 0);
    mailbox->post(1, 0, {}, kBytes);
  }
  std::this_thread::sleep_for(milliseconds(1500));  // until rank 1 is dead, or stuck
  const auto start = Clock::now();
  mailboxes.clear();
  comm.reset();
  say(0, "has left", start);
}

void leave_a_dead_rank() { leave(die); }

void leave_a_stuck_rank() {
  leave([] { std::this_thread::sleep_for(std::chrono::minutes(1)); });
}

// The last rank is late for the second communicator, and all try again.
void late() {
  const Communicator first = connect(std::chrono::minutes(1));
  const int rank = first.rank();
  const auto start = Clock::now();
  if (rank == first.world() - 1) std::this_thread::sleep_for(milliseconds(1200));
  for (int tries = 1;; ++tries) {
    try {
      Communicator second = connect(milliseconds(400));
      float ranks = 1;
      all_reduce({&ranks, 1}, second);
      return say(rank, ranks == static_cast<float>(first.world()) ? "connects" : "fails", start);
    } catch (const Error& error) {
      if (tries == 1) say(rank, std::string(name(error.code())) + ": " + error.what(), start);
    }
  }
}

// Registered first, called last: after the end of MPI.
void say_at_the_end() {
  static int rank = 0;
  static Clock::time_point start;
  std::atexit([] { say(rank, "ends", start); });
  Communicator comm = connect(std::chrono::minutes(1));
  rank = comm.rank();
  start = Clock::now();
}

void stuck_in_finalize() {
  say_at_the_end();
  Communicator comm = connect(std::chrono::minutes(1));
  comm.split(0, 0)->abort("after a failure the others are waited for only shortly");
  barrier(comm);
  g_is_stuck_in_finalize = comm.rank() == 1;
}

void end_without_a_dead_rank() {
  say_at_the_end();
  Communicator comm = connect(std::chrono::minutes(1));
  try {
    barrier(comm);
  } catch (const Error& error) {
    // Rank 0 may still be in it when rank 1 has died.
    if (error.code() != Code::peer_lost) throw;
  }
  if (comm.rank() == 1) die();
}

const std::map<std::string, void (*)()> kScenes = {
    {"killed_in_barrier", killed_in_barrier},
    {"killed_in_operator", killed_in_operator},
    {"post_to_a_dead_rank", post_to_a_dead_rank},
    {"leave_a_dead_rank", leave_a_dead_rank},
    {"leave_a_stuck_rank", leave_a_stuck_rank},
    {"late", late},
    {"stuck_in_finalize", stuck_in_finalize},
    {"end_without_a_dead_rank", end_without_a_dead_rank}};

}  // namespace
}  // namespace plait

// In place of the library's own, which the plugin would call: all have met by now.
extern "C" PLAIT_EXPORT int MPI_Finalize() {  // NOLINT: MPI names it so
  if (plait::g_is_stuck_in_finalize) std::this_thread::sleep_for(std::chrono::minutes(1));
  return reinterpret_cast<int (*)()>(::dlsym(RTLD_NEXT, "MPI_Finalize"))();
}

int main(int count, char** words) {
  const auto scene = plait::kScenes.find(count == 2 ? words[1] : "");
  if (scene == plait::kScenes.end()) return 2;
  scene->second();
  return 0;
}
