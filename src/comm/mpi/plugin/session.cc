#include "comm/mpi/plugin/session.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>

#include "base/check.h"
#include "base/text.h"
#include "comm/mpi/plugin/leftovers.h"
#include "comm/mpi/plugin/lifetime.h"

namespace plait::comm::mpi {
namespace {

using base::Nanoseconds;

constexpr Nanoseconds kBetweenQuestions = 10 * base::kMillisecond;
constexpr Nanoseconds kFinalMeeting = 20 * base::kSecond;
constexpr Nanoseconds kFinalMeetingAfterFailure = 5 * base::kSecond;
constexpr Nanoseconds kFinaliseAlone = 5 * base::kSecond;

// Written by start_mpi(), which one thread calls at a time; constant once it has returned.
struct Library {
  bool started_here = false;
  pid_t pid = 0;
  std::array<MPI_Comm, kCarriers> carriers = {};
  int made = 0;
  MPI_Request duplicating = MPI_REQUEST_NULL;
  int highest_tag = 0;
  std::shared_ptr<const Neighbours> processes;
  std::function<void()> close = [] {};
};

// Never destroyed: the end of MPI, when the process ends, needs it.
Library& library() {
  static Library& one = *std::make_unique<Library>().release();
  return one;
}

// Memory ordering: relaxed; read once, when the process ends, and at worst some seconds are lost.
std::atomic<bool> g_failed{false};

bool one_has_ended() {
  return library().processes != nullptr && library().processes->any_has_ended();
}

bool has_ended() {
  int ended = 0;
  MPI_Finalized(&ended);
  return ended != 0;
}

// MPI_Finalize waits for all processes, for ever. So they meet first, with a deadline: where one is
// dead or stuck, the others go without it, and the launcher says that they did.
bool meet_for_the_last_time(Nanoseconds deadline) {
  MPI_Request meeting = MPI_REQUEST_NULL;
  {
    const auto held = hold_mpi();
    if (MPI_Ibarrier(carrier(0), &meeting) != MPI_SUCCESS) return false;
  }
  for (;;) {
    settle_leftovers();
    int met = 0;
    {
      const auto held = hold_mpi();
      if (MPI_Test(&meeting, &met, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    }
    if (met != 0) return true;
    // A process that has met the others goes on to MPI_Finalize, and stays there until this one is
    // there too: whatever has ended by now will never be there.
    if (base::now() > deadline || one_has_ended()) return false;
    ::usleep(100);
  }
}

// One that was killed after the meeting keeps the others in MPI_Finalize. The others end when they
// are through with it, perhaps just before this one is.
void finalise(Nanoseconds deadline) {
  Nanoseconds ended_at = 0;
  Lifetime::instance().end([&] {
    const Nanoseconds now = base::now();
    if (ended_at == 0 && one_has_ended()) ended_at = now;
    return now > deadline || (ended_at != 0 && now - ended_at > kFinaliseAlone);
  });
}

void end_mpi() {
  if (!mpi_is_usable() || library().made < kCarriers) return;
  const bool failed = g_failed.load(std::memory_order_relaxed);
  const Nanoseconds deadline = base::now() + (failed ? kFinalMeetingAfterFailure : kFinalMeeting);
  if (!meet_for_the_last_time(deadline)) return;
  library().close();
  finalise(deadline);
}

// How many threads MPI allows, once it has started.
int start_library(const Meeting& meeting) {
  const Nanoseconds timeout = meeting.timeout;
  const Nanoseconds deadline = base::now() + timeout;
  auto started = Lifetime::instance().start(kBetweenQuestions);
  while (!started && base::now() < deadline) {
    if (meeting.interrupted) meeting.interrupted();
    started = Lifetime::instance().start(kBetweenQuestions);
  }
  if (!started) {
    throw Error(
        Code::timeout,
        base::sentence("MPI_Init_thread has not ended within ", base::show_duration(timeout),
                       ": not all processes that were started together have called it, or "
                       "it needs longer than PLAIT_TIMEOUT allows"));
  }
  check_mpi(started->result, "MPI_Init_thread");
  if (std::atexit(end_mpi) != 0) base::fail(Code::system, "cannot register the end of MPI");
  return started->provided;
}

void initialise(const Meeting& meeting) {
  int started = 0;
  MPI_Initialized(&started);
  int provided = 0;
  // What was not started in time may have started since.
  if (started != 0 && !library().started_here) {
    check_mpi(MPI_Query_thread(&provided), "MPI_Query_thread");
  } else {
    library().started_here = true;
    provided = start_library(meeting);
  }
  PLAIT_CHECK(provided >= MPI_THREAD_SERIALIZED,
              "this MPI library was started for one thread only");
  // What belongs to no communicator is reported to this one. A program's own stays as it is.
  if (library().started_here) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int* highest_tag = nullptr;
  int known = 0;
  check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&highest_tag), &known),
            "MPI_Comm_get_attr");
  library().highest_tag = known != 0 ? *highest_tag : 32767;  // the least that MPI promises
  library().pid = ::getpid();
}

// The only collective calls: later, tags take the place of communicators (see members.h). One at a
// time, as they are made of agreements among all processes.
void begin_duplicating() {
  check_mpi(
      MPI_Comm_idup(MPI_COMM_WORLD, &library().carriers[library().made], &library().duplicating),
      "MPI_Comm_idup");
}

bool has_all_carriers() {
  const auto held = hold_mpi();
  if (library().duplicating == MPI_REQUEST_NULL) begin_duplicating();
  int done = 0;
  check_mpi(MPI_Test(&library().duplicating, &done, MPI_STATUS_IGNORE), "MPI_Test");
  if (done == 0) return false;
  check_mpi(MPI_Comm_set_errhandler(library().carriers[library().made], MPI_ERRORS_RETURN),
            "MPI_Comm_set_errhandler");
  return ++library().made == kCarriers;
}

}  // namespace

std::unique_lock<std::mutex> hold_mpi() {
  static std::mutex mutex;
  return std::unique_lock(mutex);
}

void check_mpi(int result, const char* what) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  base::fail(Code::system, what, ": ", text.data());
}

void start_mpi(const Meeting& meeting) {
  PLAIT_CHECK(library().pid == 0 || library().pid == ::getpid(),
              "this process was forked from one that uses MPI, and cannot use it itself");
  const Nanoseconds timeout = meeting.timeout;
  const Nanoseconds deadline = base::now() + timeout;
  {
    const auto held = hold_mpi();
    PLAIT_CHECK(!has_ended(), "the mpi transport cannot be used after MPI_Finalize");
    if (library().pid == 0) initialise(meeting);
  }
  Nanoseconds ask_at = 0;
  while (library().made < kCarriers && !has_all_carriers()) {
    if (meeting.interrupted && base::now() >= ask_at) {
      meeting.interrupted();
      ask_at = base::now() + kBetweenQuestions;
    }
    if (base::now() >= deadline) {
      throw Error(Code::timeout, base::sentence("not all processes of MPI_COMM_WORLD have asked "
                                                "for the mpi transport within ",
                                                base::show_duration(timeout)));
    }
    ::usleep(20);
  }
}

bool mpi_is_usable() noexcept { return library().pid == ::getpid() && !has_ended(); }

MPI_Comm carrier(int number) { return library().carriers[number]; }

int process_rank() {
  int rank = 0;
  MPI_Comm_rank(library().carriers[0], &rank);
  return rank;
}

int process_count() {
  int count = 0;
  MPI_Comm_size(library().carriers[0], &count);
  return count;
}

int highest_tag() { return library().highest_tag; }

void close_at_the_end(std::function<void()> close) { library().close = std::move(close); }

void watch_at_the_end(std::shared_ptr<const Neighbours> processes) {
  library().processes = std::move(processes);
}

void note_failure() noexcept { g_failed.store(true, std::memory_order_relaxed); }

}  // namespace plait::comm::mpi
