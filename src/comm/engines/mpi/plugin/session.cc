#include "comm/engines/mpi/plugin/session.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "comm/core/deadline.h"
#include "comm/engines/mpi/plugin/library_settings.h"
#include "comm/engines/mpi/plugin/mpi_thread.h"
#include "comm/meet/meeting_point.h"

namespace plait::comm::mpi {
namespace {

using base::Nanoseconds;

// Stands for all calls without a handle, which are about the same duplicates.
constexpr const char* kWithoutHandle = "connect()";

constexpr Nanoseconds kBetweenQuestions = 10 * base::kMillisecond;
constexpr Nanoseconds kFinalMeeting = 20 * base::kSecond;
constexpr Nanoseconds kFinalMeetingAfterFailure = 5 * base::kSecond;
constexpr Nanoseconds kFinaliseAlone = 5 * base::kSecond;
constexpr Nanoseconds kLastReleases = 200 * base::kMillisecond;

struct Duplicates {
  Processes processes = {};
  std::size_t made = 0;
  MPI_Request under_way = MPI_REQUEST_NULL;  // the next duplicate, or rank 0's words for all
  std::optional<tcp::MeetingPoint> meeting_point = {};  // of rank 0
  std::array<char, 4096> words = {};                    // that name it, and zeros
};

// Written by meet_processes(), which one thread calls at a time.
struct Library {
  bool started_here = false;
  pid_t pid = 0;
  // Indexed by the processes' ranks in MPI_COMM_WORLD, and then by the call that began to make
  // them.
  std::map<std::vector<int>, std::map<std::string, Duplicates>> duplicates;
  const Duplicates* world = nullptr;
  int highest_tag = 0;
  std::vector<std::shared_ptr<const LocalProcesses>> local_processes;
  std::vector<std::weak_ptr<DeferredRelease>> closings;
};

// Never destroyed: the end of MPI, when the process ends, needs it.
Library& library() {
  static Library& one = *std::make_unique<Library>().release();
  return one;
}

// Memory ordering: relaxed; read once, when the process ends, and at worst some seconds are lost.
std::atomic<bool> g_failed{false};

// Memory ordering: relaxed; set under hold_mpi(), and decisive only there.
std::atomic<bool> g_ended{false};

bool one_has_ended() {
  const auto& all = library().local_processes;
  return std::any_of(all.begin(), all.end(), [](const auto& one) { return one->any_has_ended(); });
}

bool has_ended() {
  int ended = 0;
  MPI_Finalized(&ended);
  return ended != 0 || g_ended.load(std::memory_order_relaxed);
}

// MPI_Finalize waits for all processes, for ever. So they meet first, with a deadline: where one is
// dead or stuck, the others go without it, and the launcher says that they did.
bool meet_for_the_last_time(Nanoseconds deadline) {
  if (one_has_ended()) return false;
  MPI_Request meeting = MPI_REQUEST_NULL;
  {
    const auto held = hold_mpi();
    MPI_Comm all = library().world->processes.comm_dups.front();
    if (MPI_Ibarrier(all, &meeting) != MPI_SUCCESS) return false;
  }
  for (;;) {
    release_finished();
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
  MpiThread::instance().end([&] {
    const Nanoseconds now = base::now();
    if (ended_at == 0 && one_has_ended()) ended_at = now;
    return now > deadline || (ended_at != 0 && now - ended_at > kFinaliseAlone);
  });
}

void end_mpi() {
  const Duplicates* const world = library().world;
  if (!mpi_is_usable() || world == nullptr || world->made < world->processes.comm_dups.size())
    return;
  const bool failed = g_failed.load(std::memory_order_relaxed);
  const Nanoseconds deadline = base::now() + (failed ? kFinalMeetingAfterFailure : kFinalMeeting);
  if (!meet_for_the_last_time(deadline)) return;
  finalise(deadline);
}

// How many threads MPI allows, once it has started.
int start_library(const MeetOptions& options) {
  const Nanoseconds timeout = options.timeout;
  Deadline deadline(timeout);
  apply_library_settings(options.hosts);
  auto started = MpiThread::instance().start(kBetweenQuestions);
  while (!started && !deadline.is_over()) {
    if (options.interrupted) options.interrupted();
    started = MpiThread::instance().start(kBetweenQuestions);
  }
  if (!started) {
    throw Error(
        Code::timeout,
        base::sentence("MPI_Init_thread has not ended within ", base::show_duration(timeout),
                       ": not all processes that were started together have called it (this one "
                       "uses the transport mpi: check PLAIT_TRANSPORT on the others), or it needs "
                       "longer than PLAIT_TIMEOUT allows"));
  }
  check_mpi(started->result, "MPI_Init_thread");
  if (std::atexit(end_mpi) != 0) base::fail(Code::system, "cannot register the end of MPI");
  return started->provided;
}

// MPI_Finalize calls it first of all, as it deletes what MPI_COMM_SELF has.
int close_all(MPI_Comm /*self*/, int /*key*/, void* /*value*/, void* /*state*/) {
  for (const auto& closing : library().closings) {
    if (const auto one = closing.lock()) release_later(one);
  }
  // The other processes of a program that ends MPI are here too, and finish what is left.
  const Nanoseconds deadline = base::now() + (library().started_here ? 0 : kLastReleases);
  while (release_finished() > 0 && base::now() < deadline) ::usleep(20);
  const auto held = hold_mpi();
  g_ended.store(true, std::memory_order_relaxed);
  return MPI_SUCCESS;
}

void expect_the_end() {
  int key = MPI_KEYVAL_INVALID;
  check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, close_all, &key, nullptr),
            "MPI_Comm_create_keyval");
  check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr), "MPI_Comm_set_attr");
}

void initialise(const MeetOptions& options) {
  int started = 0;
  MPI_Initialized(&started);
  int provided = 0;
  // MPI was not started in time, but may have started since.
  if (started != 0 && !library().started_here) {
    check_mpi(MPI_Query_thread(&provided), "MPI_Query_thread");
  } else {
    library().started_here = true;
    provided = start_library(options);
  }
  PLAIT_CHECK(provided >= MPI_THREAD_SERIALIZED,
              "the transport mpi needs MPI_Init_thread with MPI_THREAD_SERIALIZED or more, and MPI "
              "was started with ",
              provided == MPI_THREAD_SINGLE ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED");
  // MPI reports errors of no communicator to this one. A program's own handler stays.
  if (library().started_here) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int* highest_tag = nullptr;
  int known = 0;
  check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&highest_tag), &known),
            "MPI_Comm_get_attr");
  library().highest_tag = known != 0 ? *highest_tag : 32767;  // the least that MPI promises
  expect_the_end();
  library().pid = ::getpid();
}

// Those of a communicator, as ranks of MPI_COMM_WORLD.
std::vector<int> ranks_in_world(MPI_Comm comm) {
  MPI_Group theirs = MPI_GROUP_NULL;
  MPI_Group all = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(comm, &theirs), "MPI_Comm_group");
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &all), "MPI_Comm_group");
  int count = 0;
  MPI_Group_size(theirs, &count);
  std::vector<int> own(count);
  std::iota(own.begin(), own.end(), 0);
  std::vector<int> ranks(count);
  check_mpi(MPI_Group_translate_ranks(theirs, count, own.data(), all, ranks.data()),
            "MPI_Group_translate_ranks");
  MPI_Group_free(&theirs);
  MPI_Group_free(&all);
  for (const int rank : ranks) {
    PLAIT_CHECK(rank != MPI_UNDEFINED,
                "the transport mpi connects processes of one MPI_COMM_WORLD, and this communicator "
                "has others too; connect them by tcp");
  }
  return ranks;
}

// The call whose duplicates all processes have begun to make, or else this one.
std::string choose_call(const std::map<std::string, Duplicates>& mine, const MeetOptions& options) {
  if (!options.all_gather) return kWithoutHandle;
  std::string calls;
  for (const auto& [call, duplicates] : mine) calls += call + '\n';
  std::map<std::string, std::size_t> known;
  const auto all = options.all_gather(calls);
  for (const std::string& theirs : all) {
    for (const std::string_view call : base::split(theirs, '\n')) ++known[std::string(call)];
  }
  for (const auto& [call, duplicates] : mine) {
    if (known[call] == all.size()) return call;
  }
  return options.job;
}

Duplicates& duplicates_of(MPI_Comm comm, const MeetOptions& options) {
  std::vector<int> ranks;
  {
    const auto held = hold_mpi();
    ranks = ranks_in_world(comm);
  }
  std::map<std::string, Duplicates>& all = library().duplicates[ranks];
  Duplicates& found = all[choose_call(all, options)];
  const auto held = hold_mpi();
  MPI_Comm_rank(comm, &found.processes.rank);
  MPI_Comm_size(comm, &found.processes.count);
  if (!options.all_gather) library().world = &found;
  return found;
}

// Makes the next duplicate. Only the first is of the program's communicator, which the program may
// free when a call has failed.
void make_duplicate(Duplicates& duplicates, MPI_Comm of) {
  const auto held = hold_mpi();
  auto& comm_dups = duplicates.processes.comm_dups;
  MPI_Comm& next = comm_dups[duplicates.made];
  if (duplicates.under_way == MPI_REQUEST_NULL) {
    MPI_Comm source = duplicates.made == 0 ? of : comm_dups.front();
    check_mpi(MPI_Comm_idup(source, &next, &duplicates.under_way), "MPI_Comm_idup");
  }
  int done = 0;
  check_mpi(MPI_Test(&duplicates.under_way, &done, MPI_STATUS_IGNORE), "MPI_Test");
  if (done == 0) return;
  check_mpi(MPI_Comm_set_errhandler(next, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  ++duplicates.made;
}

// Rank 0 tells all where it is to be met; true when this process knows.
bool has_meeting_point(Duplicates& duplicates) {
  Processes& processes = duplicates.processes;
  auto& words = duplicates.words;
  if (processes.rank == 0 && !duplicates.meeting_point) {
    const std::string& mine = duplicates.meeting_point.emplace().words();
    PLAIT_CHECK(mine.size() < words.size(), "rank 0 has ", mine.size(),
                " bytes to say of itself: PLAIT_INTERFACE names one of its networks");
    mine.copy(words.data(), mine.size());
  }
  const auto held = hold_mpi();
  if (duplicates.under_way == MPI_REQUEST_NULL) {
    check_mpi(MPI_Ibcast(words.data(), static_cast<int>(words.size()), MPI_BYTE, 0,
                         processes.comm_dups.front(), &duplicates.under_way),
              "MPI_Ibcast");
  }
  int done = 0;
  check_mpi(MPI_Test(&duplicates.under_way, &done, MPI_STATUS_IGNORE), "MPI_Test");
  if (done != 0) processes.meeting_point = words.data();
  return done != 0;
}

// The only collective calls. One at a time, as they are made of agreements among all processes.
// True when all are done.
bool advance(Duplicates& duplicates, MPI_Comm of, bool is_program) {
  const Processes& processes = duplicates.processes;
  if (duplicates.made < processes.comm_dups.size()) {
    make_duplicate(duplicates, of);
    return false;
  }
  return is_program || !processes.meeting_point.empty() || has_meeting_point(duplicates);
}

}  // namespace

std::unique_lock<std::mutex> hold_mpi() {
  static std::mutex mutex;
  std::unique_lock held(mutex);
  PLAIT_CHECK(!g_ended.load(std::memory_order_relaxed),
              "MPI_Finalize was called, which has ended the transport mpi and all its groups");
  return held;
}

std::string error_of(int result, const char* what) {
  if (result == MPI_SUCCESS) return "";
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  return base::sentence(what, ": ", text.data());
}

void check_mpi(int result, const char* what) {
  if (result != MPI_SUCCESS) throw Error(Code::system, error_of(result, what));
}

Processes& meet_processes(std::optional<int> handle, const MeetOptions& options) {
  PLAIT_CHECK(library().pid == 0 || library().pid == ::getpid(),
              "this process was forked from one that uses MPI, and cannot use it itself");
  const Nanoseconds timeout = options.timeout;
  Deadline deadline(timeout);
  PLAIT_CHECK(!has_ended(), "the mpi transport cannot be used after MPI_Finalize");
  {
    const auto held = hold_mpi();
    int started = 0;
    MPI_Initialized(&started);
    PLAIT_CHECK(!handle || started != 0,
                "from_mpi: the program has started another MPI library than the one of plait's "
                "plugin");
    if (library().pid == 0) initialise(options);
  }
  MPI_Comm of = handle ? MPI_Comm_f2c(*handle) : MPI_COMM_WORLD;
  Duplicates& duplicates = duplicates_of(of, options);
  Nanoseconds ask_at = 0;
  while (!advance(duplicates, of, handle.has_value())) {
    if (options.interrupted && base::now() >= ask_at) {
      options.interrupted();
      ask_at = base::now() + kBetweenQuestions;
    }
    if (deadline.is_over()) {
      throw Error(Code::timeout, base::sentence("not all processes of ",
                                                handle ? "the communicator" : "MPI_COMM_WORLD",
                                                " have asked for the mpi transport within ",
                                                base::show_duration(timeout)));
    }
    ::usleep(20);
  }
  return duplicates.processes;
}

bool mpi_is_usable() noexcept { return library().pid == ::getpid() && !has_ended(); }

int highest_tag() { return library().highest_tag; }

void close_at_the_end(std::weak_ptr<DeferredRelease> one) {
  std::erase_if(library().closings, [](const auto& closing) { return closing.expired(); });
  library().closings.push_back(std::move(one));
}

void watch_at_the_end(Processes& processes, const std::vector<std::string>& records) {
  if (processes.local_processes != nullptr) return;
  processes.local_processes = std::make_shared<const LocalProcesses>(records);
  library().local_processes.push_back(processes.local_processes);
}

void note_failure() noexcept { g_failed.store(true, std::memory_order_relaxed); }

}  // namespace plait::comm::mpi
