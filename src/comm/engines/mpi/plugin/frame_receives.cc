#include "comm/engines/mpi/plugin/frame_receives.h"

#include "comm/engines/mpi/plugin/session.h"

namespace plait::comm::mpi {

FrameReceives::FrameReceives(MPI_Comm comm, int tag, std::size_t most_bytes)
    : comm_(comm), tag_(tag), most_bytes_(most_bytes) {}

void FrameReceives::start(int me, int processes) {
  requests_.assign(static_cast<std::size_t>(processes), MPI_REQUEST_NULL);
  buffers_.resize(requests_.size());
  for (int process = 0; process < processes; ++process) {
    if (process == me) continue;
    buffers_[process] = std::make_unique_for_overwrite<std::byte[]>(most_bytes_);
    receive_again(process);
  }
}

void FrameReceives::receive_again(int process) {
  check_mpi(MPI_Irecv(buffers_[process].get(), static_cast<int>(most_bytes_), MPI_BYTE, process,
                      tag_, comm_, &requests_[process]),
            "MPI_Irecv");
}

std::optional<FrameReceives::Received> FrameReceives::next() {
  if (is_given_up_) return std::nullopt;
  int process = MPI_UNDEFINED;
  int has_come = 0;
  MPI_Status status = {};
  const int result = MPI_Testany(static_cast<int>(requests_.size()), requests_.data(), &process,
                                 &has_come, &status);
  if (result != MPI_SUCCESS && process >= 0 && process < static_cast<int>(requests_.size())) {
    return Received{.process = process, .bytes = {}, .error = error_of(result, "MPI_Testany")};
  }
  check_mpi(result, "MPI_Testany");
  if (has_come == 0 || process == MPI_UNDEFINED) return std::nullopt;
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  return Received{.process = process,
                  .bytes = {buffers_[process].get(), static_cast<std::size_t>(count)},
                  .error = {}};
}

bool FrameReceives::is_done() {
  const auto held = hold_mpi();
  bool is_idle = true;
  for (MPI_Request& request : requests_) {
    if (!is_given_up_ && request != MPI_REQUEST_NULL) MPI_Cancel(&request);
    int is_over = 0;
    check_mpi(MPI_Test(&request, &is_over, MPI_STATUS_IGNORE), "MPI_Test");
    is_idle = is_idle && is_over != 0;
  }
  is_given_up_ = true;
  return is_idle;
}

}  // namespace plait::comm::mpi
