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

// Relaxed: read at exit, when all else has ended.
std::atomic<bool> g_end_at_exit{false};

void end_mpi() {
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended == 0 && g_end_at_exit.load(std::memory_order_relaxed)) MPI_Finalize();
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
  g_end_at_exit.store(true, std::memory_order_relaxed);
  if (std::atexit(end_mpi) != 0) base::fail(Code::system, "cannot register the end of MPI");
}

void leave_mpi_running() noexcept { g_end_at_exit.store(false, std::memory_order_relaxed); }

Session Session::duplicate(MPI_Comm parent) {
  const auto held = hold_mpi();
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(parent, &comm), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return Session(comm);
}

Session Session::of_members(MPI_Comm parent, const std::vector<int>& members) {
  const auto held = hold_mpi();
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group chosen = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(parent, &all), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &chosen),
            "MPI_Group_incl");
  check_mpi(MPI_Comm_create_group(parent, chosen, 0, &comm), "MPI_Comm_create_group");
  MPI_Group_free(&all);
  MPI_Group_free(&chosen);
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return Session(comm);
}

Session::Session(Session&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}

Session::~Session() {
  int ended = 0;
  MPI_Finalized(&ended);
  // After a failure peers may be gone, and MPI_Comm_free is theirs too: better lost than hung.
  if (comm_ == MPI_COMM_NULL || ended != 0 || !g_end_at_exit.load(std::memory_order_relaxed))
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
