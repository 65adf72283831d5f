#include "comm/engines/mpi/plugin/mpi_thread.h"

#include <mpi.h>

#include <chrono>
#include <memory>
#include <system_error>

#include "base/check.h"
#include "base/detached_thread.h"

namespace plait::comm::mpi {

MpiThread& MpiThread::instance() {
  static MpiThread& one = *std::make_unique<MpiThread>().release();
  return one;
}

std::optional<MpiThread::Started> MpiThread::start(base::Nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!begun_) {
    try {
      base::start_detached([this] { run(); });
    } catch (const std::system_error& error) {
      base::fail(Code::system, "cannot start a thread for MPI: ", error.what());
    }
    begun_ = true;
  }
  changed_.wait_for(lock, std::chrono::nanoseconds(timeout), [&] { return started_.has_value(); });
  return started_;
}

void MpiThread::end(base::FunctionRef<bool()> gives_up) {
  std::unique_lock lock(mutex_);
  to_end_ = true;
  changed_.notify_all();
  while (!ended_ && !gives_up()) changed_.wait_for(lock, std::chrono::milliseconds(10));
}

void MpiThread::run() {
  Started started = {.result = MPI_SUCCESS, .provided = MPI_THREAD_SINGLE};
  started.result = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &started.provided);
  std::unique_lock lock(mutex_);
  started_ = started;
  changed_.notify_all();
  changed_.wait(lock, [&] { return to_end_; });
  lock.unlock();
  MPI_Finalize();
  lock.lock();
  ended_ = true;
  changed_.notify_all();
}

}  // namespace plait::comm::mpi
