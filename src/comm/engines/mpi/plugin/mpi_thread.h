// The thread that starts and ends MPI. Both calls block until all processes have made them, so
// other threads wait for this one with a deadline.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "base/function_ref.h"

namespace plait::comm::mpi {

class MpiThread {
 public:
  // There is one, never destroyed: its thread may be in MPI_Init_thread when the process ends.
  static MpiThread& instance();

  struct Started {
    int result;    // of MPI_Init_thread
    int provided;  // how many threads it allows
  };

  // Starts MPI, once; nothing where that has not ended within `timeout`. Asking again waits on.
  std::optional<Started> start(base::Nanoseconds timeout);

  // Ends what start() has started. By the thread that has started it, as MPI asks for. MPI_Finalize
  // waits for processes that will never come if they were killed, so `gives_up` is asked now and
  // then whether to return all the same: the thread then stays in MPI until the process ends.
  void end(base::FunctionRef<bool()> gives_up);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false;
  std::optional<Started> started_;
  bool to_end_ = false;
  bool ended_ = false;
};

}  // namespace plait::comm::mpi
