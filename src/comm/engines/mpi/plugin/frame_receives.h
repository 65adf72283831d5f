// A receive of the next frame of each process, posted before it comes, so that a small chunk is
// brought straight to plait's memory. Frames of one process come in order, and none waits for
// another process, which may have died in the middle of one.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/engines/mpi/plugin/deferred_release.h"

namespace plait::comm::mpi {

class FrameReceives final : public DeferredRelease {
 public:
  // Frames come with this tag, and have at most so many bytes. All functions are called under
  // hold_mpi(), but is_done().
  FrameReceives(MPI_Comm comm, int tag, std::size_t most_bytes);

  // From all processes but this one.
  void start(int me, int processes);

  struct Received {
    int process;
    std::span<const std::byte> bytes;
    std::string error;  // why nothing comes from the process any more; empty: it does
  };
  // The next frame, which stays until receive_again(); null: none has come.
  std::optional<Received> next();
  void receive_again(int process);

  // Gives up the receives. True when MPI uses none of them any more.
  bool is_done() override;

 private:
  MPI_Comm comm_;
  int tag_;
  std::size_t most_bytes_;
  std::vector<MPI_Request> requests_;                  // by process
  std::vector<std::unique_ptr<std::byte[]>> buffers_;  // by process
  bool is_given_up_ = false;
};

}  // namespace plait::comm::mpi
