#include "comm/engines/mpi/plugin/frame_receives.h"

#include <algorithm>

#include "comm/engines/mpi/plugin/session.h"

namespace plait::comm::mpi {

FrameReceives::FrameReceives(MPI_Comm comm, int tag, std::size_t most_bytes)
    : comm_(comm), tag_(tag) {
  for (Posted& one : posted_) one.bytes.resize(most_bytes);
  for (Posted& one : posted_) post(one);
}

void FrameReceives::post(Posted& one) {
  check_mpi(MPI_Irecv(one.bytes.data(), static_cast<int>(one.bytes.size()), MPI_BYTE,
                      MPI_ANY_SOURCE, tag_, comm_, &one.request),
            "MPI_Irecv");
}

std::optional<FrameReceives::Received> FrameReceives::next() {
  Posted& one = posted_[next_];
  if (is_given_up_) return std::nullopt;
  int has_come = 0;
  MPI_Status status = {};
  check_mpi(MPI_Test(&one.request, &has_come, &status), "MPI_Test");
  if (has_come == 0) return std::nullopt;
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  return Received{.process = status.MPI_SOURCE,
                  .bytes = {one.bytes.data(), static_cast<std::size_t>(count)}};
}

void FrameReceives::receive_again() {
  post(posted_[next_]);
  next_ = (next_ + 1) % posted_.size();
}

bool FrameReceives::is_done() {
  const auto held = hold_mpi();
  for (Posted& one : posted_) {
    if (!is_given_up_ && one.request != MPI_REQUEST_NULL) MPI_Cancel(&one.request);
  }
  is_given_up_ = true;
  return std::all_of(posted_.begin(), posted_.end(), [](Posted& one) {
    int is_over = 0;
    check_mpi(MPI_Test(&one.request, &is_over, MPI_STATUS_IGNORE), "MPI_Test");
    return is_over != 0;
  });
}

}  // namespace plait::comm::mpi
