#include "comm/mpi/plugin/session.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace plait::comm::mpi {
namespace {

// Relaxed, both: read at exit, when all else has ended.
std::atomic<bool> g_started{false};
std::atomic<bool> g_failed{false};

// MPI_Finalize waits for all processes, for ever. So they meet first, with a deadline: where one is
// dead or stuck, the others go without it, and the launcher says that they did.
void end_mpi() {
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended != 0 || !g_started.load(std::memory_order_relaxed)) return;
  const bool failed = g_failed.load(std::memory_order_relaxed);
  const base::Nanoseconds deadline = base::now() + (failed ? 2 : 20) * base::kSecond;
  MPI_Request meeting = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(MPI_COMM_WORLD, &meeting) != MPI_SUCCESS) return;
  for (int met = 0; met == 0; ::usleep(100)) {
    if (MPI_Test(&meeting, &met, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
    if (met == 0 && base::now() > deadline) return;
  }
  MPI_Finalize();
}

void wait_for(MPI_Request& request, base::Nanoseconds deadline,
              base::FunctionRef<void()> interrupt) {
  for (int turn = 0;; ++turn) {
    int done = 0;
    {
      const auto held = hold_mpi();
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    }
    if (done != 0) return;
    interrupt();
    if (base::now() >= deadline)
      throw Error(Code::timeout, "not all ranks have come to a set-up call in time");
    if (turn > 100) ::usleep(200);
  }
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

void start_mpi() {
  const auto held = hold_mpi();
  int started = 0;
  int ended = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  PLAIT_CHECK(ended == 0, "the mpi transport cannot be used after MPI_Finalize");
  if (started != 0) return;
  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  PLAIT_CHECK(provided >= MPI_THREAD_SERIALIZED, "this MPI library allows one thread only");
  g_started.store(true, std::memory_order_relaxed);
  if (std::atexit(end_mpi) != 0) base::fail(Code::system, "cannot register the end of MPI");
}

void note_failure() noexcept { g_failed.store(true, std::memory_order_relaxed); }

Session Session::duplicate(MPI_Comm parent) {
  const auto held = hold_mpi();
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(parent, &comm), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return Session(comm);
}

Session Session::split(MPI_Comm parent, int color, int key) {
  const auto held = hold_mpi();
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(parent, color, key, &comm), "MPI_Comm_split");
  if (comm != MPI_COMM_NULL) {
    check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  return Session(comm);
}

Session::Session(Session&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}

Session::~Session() {
  int ended = 0;
  MPI_Finalized(&ended);
  // After a failure peers may be gone, and MPI_Comm_free is theirs too: better lost than hung.
  if (comm_ == MPI_COMM_NULL || ended != 0 || g_failed.load(std::memory_order_relaxed))
    return;
  const auto held = hold_mpi();
  MPI_Comm_free(&comm_);
}

int Session::rank() const {
  int rank = 0;
  MPI_Comm_rank(comm_, &rank);
  return rank;
}

int Session::world() const {
  int world = 0;
  MPI_Comm_size(comm_, &world);
  return world;
}

std::vector<std::string> Session::all_gather(const std::string& mine, base::Nanoseconds timeout,
                                             base::FunctionRef<void()> interrupt) const {
  const base::Nanoseconds deadline = base::now() + timeout;
  const int length = static_cast<int>(mine.size());
  std::vector<int> lengths(world());
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const auto held = hold_mpi();
    check_mpi(MPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm_, &request),
              "MPI_Iallgather");
  }
  wait_for(request, deadline, interrupt);
  std::vector<int> offsets(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), 0);
  std::string all(static_cast<std::size_t>(offsets.back() + lengths.back()), '\0');
  {
    const auto held = hold_mpi();
    check_mpi(MPI_Iallgatherv(mine.data(), length, MPI_BYTE, all.data(), lengths.data(),
                              offsets.data(), MPI_BYTE, comm_, &request),
              "MPI_Iallgatherv");
  }
  wait_for(request, deadline, interrupt);
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    parts.push_back(all.substr(offsets[i], lengths[i]));
  return parts;
}

}  // namespace plait::comm::mpi
