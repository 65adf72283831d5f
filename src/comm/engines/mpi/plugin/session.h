// The MPI library as plait uses it: point-to-point messages over duplicates of MPI_COMM_WORLD, or
// of a communicator of the program's, that are made once, no call that blocks but MPI's start and
// end, which have a thread to themselves, errors thrown, one call at a time.
#pragma once

#include <mpi.h>

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "comm/engines/mpi/plugin/deferred_release.h"
#include "comm/engines/mpi/plugin/local_processes.h"
#include "plait/communicator.h"

namespace plait::comm::mpi {

// How long all processes may take to come, and CommunicatorOptions::interrupted, where there is no
// group yet that has it.
struct MeetOptions {
  base::Nanoseconds timeout;
  std::function<void()> interrupted = {};
  int hosts = 1;  // of all processes, at most; for the settings of MPI, if it is started here

  // With a program's communicator: an all-gather of its ranks, and a text that no other call of
  // theirs has.
  AllGatherBytes all_gather = {};
  std::string job = {};
};

// The processes of one communicator, and the duplicates of it that messages travel over. They are
// never freed.
struct Processes {
  std::array<MPI_Comm, 2> comm_dups = {};
  int rank = 0;
  int count = 0;
  std::string meeting_point = {};  // of rank 0, of all processes that were started together
  int next_tag = 1;                // that this process has given to none of its carriers
  std::shared_ptr<const LocalProcesses> local_processes = {};  // null: not known yet
};

// The processes of the program's communicator with this Fortran handle; without one, those of
// MPI_COMM_WORLD. Communicators of the same processes in the same order share the duplicates.
//
// A call may fail when some of the duplicates are made, and at some of the processes earlier than
// at others. Therefore they agree at the next call which duplicates they go on with: those that all
// of them have begun to make. Where there are none they begin anew, and what a failed call has left
// is not used again. All calls without a handle are about the same duplicates, of MPI_COMM_WORLD,
// with which each process goes on where it stopped.
//
// There is one MPI for the whole process, and so is all of this. The first caller starts it, unless
// the program has; what it started ends with the process. Collective over these processes the first
// time; called by one thread at a time.
Processes& meet_processes(std::optional<int> handle, const MeetOptions& options);

// False when MPI has ended, and in a process that was forked from the one that started it: then
// nothing may be asked of it any more.
bool mpi_is_usable() noexcept;

int highest_tag();

// A group has failed, so perhaps not every process will come to its end in good order: this one
// waits for the others only shortly.
void note_failure() noexcept;

// If it still lives when MPI ends, whether the program or plait calls MPI_Finalize, its is_done()
// is called before that.
void close_at_the_end(std::weak_ptr<DeferredRelease> one);

// When this process ends it waits for these at most for some seconds, and not at all for those
// among them that have died.
void watch_at_the_end(Processes& processes, const std::vector<std::string>& records);

// Held around every MPI call: a library without MPI_THREAD_MULTIPLE allows one at a time. Throws
// when MPI has ended.
std::unique_lock<std::mutex> hold_mpi();

// The library's words for a result: "MPI_Test: out of memory"; empty: it has gone well.
std::string error_of(int result, const char* what);

// Throws it as Error{system}.
void check_mpi(int result, const char* what);

}  // namespace plait::comm::mpi
