// Receives of frames, posted before these come, so that a small chunk is brought straight to plait's
// memory. MPI matches messages with receives in the order of both: frames of one process come in
// order.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "comm/engines/mpi/plugin/deferred_release.h"

namespace plait::comm::mpi {

class FrameReceives final : public DeferredRelease {
 public:
  // Of frames with at most so many bytes, which come with this tag. All functions are called under
  // hold_mpi(), but is_done().
  FrameReceives(MPI_Comm comm, int tag, std::size_t most_bytes);

  struct Received {
    int process;
    std::span<const std::byte> bytes;
  };
  // The next frame, which stays until receive_again(); null: none has come.
  std::optional<Received> next();
  void receive_again();

  // Gives up the receives. True when MPI uses none of them any more.
  bool is_done() override;

 private:
  struct Posted {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void post(Posted& one);

  MPI_Comm comm_;
  int tag_;
  std::array<Posted, 8> posted_;
  std::size_t next_ = 0;  // of these, in turn
  bool is_given_up_ = false;
};

}  // namespace plait::comm::mpi
