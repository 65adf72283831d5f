// The MPI library as plait uses it: errors thrown, waits with a deadline, calls one at a time.
#pragma once

#include <mpi.h>

#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"

namespace plait::comm::mpi {

// MPI is one per process, whoever uses it; so are these. The first starts it, unless the program
// has; what it started ends with the process, soon where a group has failed.
void start_mpi();
void note_failure() noexcept;

// Held around every MPI call: a library without MPI_THREAD_MULTIPLE allows one at a time.
std::unique_lock<std::mutex> hold_mpi();

// Throws Error{system} with the library's own words.
void check_mpi(int result, const char* what);

// An MPI communicator, freed with its owner.
class Session {
 public:
  // Collective over `parent`.
  static Session duplicate(MPI_Comm parent);

  // As MPI_Comm_split; empty for a rank that gives MPI_UNDEFINED.
  static Session split(MPI_Comm parent, int color, int key);

  Session(Session&& other) noexcept;
  Session& operator=(Session&&) = delete;
  ~Session();

  MPI_Comm get() const { return comm_; }
  int rank() const;
  int world() const;

  std::vector<std::string> all_gather(const std::string& mine, base::Nanoseconds timeout,
                                      base::FunctionRef<void()> interrupt) const;

 private:
  explicit Session(MPI_Comm comm) : comm_(comm) {}
  MPI_Comm comm_;
};

}  // namespace plait::comm::mpi
